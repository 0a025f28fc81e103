// SPDX-License-Identifier: MIT
// Opens a vendor's library when it is first needed, and tells which file that turned out to be:
// a process can have several copies at hand, and most loading trouble is that it was another one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace ddprun {

/// Where to look for a library.
struct LibrarySearch {
  const char* variable;                  // overrides all others, unless empty
  std::vector<std::string> names;        // as the loader knows them, best first
  std::vector<std::string> wheel_paths;  // below a folder of Python packages, best first
};

/// Never closed: threads and streams of CUDA live as long as the process.
class SharedLibrary {
 public:
  /// Opens the first of: the file of the override variable, and then no other; a copy that the
  /// process has; what the loader finds; what Python packages brought.
  /// Throws: DeviceError "[component] loading: ..." with every candidate and why it was refused;
  ///         for a test double, unless DDPRUN_ALLOW_TEST_DOUBLES is 1.
  static SharedLibrary open(const LibrarySearch& search, const char* component);

  const std::string& path() const { return path_; }
  /// The program or another library had loaded it, and so chose the copy.
  bool loaded_before() const { return loaded_before_; }
  bool test_double() const { return test_double_; }
  /// "PATH", or "PATH (loaded already by the program)".
  std::string description() const;

  /// Null when there is none of this name.
  template <class Function>
  void find(const char* name, Function*& slot) const {
    slot = reinterpret_cast<Function*>(::dlsym(handle_, name));
  }
  /// As find; what is missing is added to `missing`.
  template <class Function>
  void find(const char* name, Function*& slot, std::vector<std::string>& missing) const {
    find(name, slot);
    if (slot == nullptr) missing.emplace_back(name);
  }

 private:
  SharedLibrary(void* handle, bool loaded_before);

  void* handle_;
  bool loaded_before_;
  bool test_double_;
  std::string path_;
};

/// Folders into which Python packages may have been installed, found without running Python.
std::vector<std::string> python_package_folders();

}  // namespace ddprun
