// SPDX-License-Identifier: MIT
// Opens a vendor's library when it is first needed, and tells which file that turned out to be:
// several copies may be at hand, and most trouble with loading is that it was another one.
#pragma once

#include <ddprun/error.h>

#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace ddprun {

/// Where to look for a library.
struct LibrarySearch {
  const char* variable;                  // its value is the only candidate, unless it is empty
  std::vector<std::string> names;        // as the loader knows them, best first
  std::vector<std::string> wheel_paths;  // below a folder of Python packages, best first
};

/// Never closed: threads and streams of CUDA live as long as the process.
class SharedLibrary {
 public:
  /// The first that `use` takes of: a copy that the process has, what the loader finds, what Python
  /// packages brought. `use` throws DeviceError to refuse one.
  /// Throws: DeviceError, its text without a tag: why each that was found is refused (a test double
  ///         is while DDPRUN_ALLOW_TEST_DOUBLES is not 1); where none was found, every candidate
  ///         and why it cannot be loaded.
  static void open(const LibrarySearch& search,
                   const std::function<void(const SharedLibrary&)>& use);

  const std::string& path() const { return path_; }
  /// By the program or another library, which thereby chose the copy.
  bool loaded_before() const { return loaded_before_; }
  bool test_double() const { return test_double_; }
  /// "PATH", or "PATH (loaded already by the program)".
  std::string description() const;

  /// Null when there is none of this name.
  template <class Function>
  void find(const char* name, Function*& slot) const {
    slot = reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  /// The same, and the name of what is missing is added to `missing`.
  template <class Function>
  void find(const char* name, Function*& slot, std::vector<std::string>& missing) const {
    find(name, slot);
    if (slot == nullptr) missing.emplace_back(name);
  }

 private:
  SharedLibrary(void* handle, bool loaded_before);
  void require_allowed(const LibrarySearch& search) const;

  void* handle_;
  bool loaded_before_;
  bool test_double_;
  std::string path_;
};

/// The functions of a library that the process opens once: whether it works or why not.
template <class Api>
struct LoadedApi {
  Api api;
  std::string why_not;  // without a tag; empty when it works

  static LoadedApi load(const LibrarySearch& search, Api (*functions_of)(const SharedLibrary&)) {
    LoadedApi loaded;
    try {
      SharedLibrary::open(
          search, [&](const SharedLibrary& library) { loaded.api = functions_of(library); });
    } catch (const DeviceError& error) {
      loaded.why_not = error.what();
    }
    return loaded;
  }
};

}  // namespace ddprun
