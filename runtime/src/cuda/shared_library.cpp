// SPDX-License-Identifier: MIT
// The search for a library; see shared_library.h.
#include "cuda/shared_library.h"

#include <ddprun/error.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/core.h>
#include <fmt/format.h>
#include <link.h>

#include "base/env.h"
#include "base/log.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

void* open_file(const std::string& name, int mode = 0) {
  return ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | mode);
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return "an unknown file";
  std::error_code error;
  const fs::path real = fs::canonical(map->l_name, error);
  return error ? map->l_name : real.string();
}

std::string value_of(const char* variable) { return get_env(variable).value_or(""); }

/// The folder lib beside that of the python3 that a shell would run, as it is named and as it is:
/// an environment's python3 is a link.
std::vector<fs::path> libs_of_python_on_path() {
  std::istringstream path(value_of("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code error;
    const fs::path python = fs::path(folder) / "python3";
    const fs::path real = fs::canonical(python, error);
    if (!error)
      return {python.parent_path().parent_path() / "lib", real.parent_path().parent_path() / "lib"};
  }
  return {};
}

/// Where packages may be installed, by an environment, by the user, by pip or by the system; found
/// without running Python.
std::vector<fs::path> python_package_folders() {
  std::vector<fs::path> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto root = value_of(variable); !root.empty())
      roots.push_back(fs::path(root) / "lib");
  const auto of_python = libs_of_python_on_path();
  roots.insert(roots.end(), of_python.begin(), of_python.end());
  if (const auto home = value_of("HOME"); !home.empty())
    roots.push_back(fs::path(home) / ".local/lib");
  roots.insert(roots.end(), {"/usr/local/lib", "/usr/lib"});
  std::vector<fs::path> folders;
  for (const fs::path& root : roots) {
    std::vector<fs::path> pythons;
    std::error_code error;
    for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error))
      if (at->path().filename().string().starts_with("python3")) pythons.push_back(at->path());
    std::sort(pythons.begin(), pythons.end());
    for (const fs::path& python : pythons)
      folders.insert(folders.end(), {python / "site-packages", python / "dist-packages"});
  }
  return folders;
}

std::vector<std::string> files_of_wheels(const LibrarySearch& search) {
  std::vector<std::string> files;
  const auto folders = python_package_folders();
  for (const std::string& path : search.wheel_paths)
    for (const fs::path& folder : folders) {
      std::error_code ignored;
      if (fs::exists(folder / path, ignored)) files.push_back(folder / path);
    }
  return files;
}

/// Of the first of these names that the process has; empty: none.
std::string path_of_loaded(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (void* const handle = open_file(name, RTLD_NOLOAD)) return path_of(handle);
  return {};
}

}  // namespace

SharedLibrary::SharedLibrary(void* handle, bool loaded_before)
    : handle_(handle),
      loaded_before_(loaded_before),
      test_double_(::dlsym(handle, "ddprun_test_double") != nullptr),
      path_(path_of(handle)) {}

void SharedLibrary::require_allowed(const LibrarySearch& search) const {
  if (test_double_ && value_of("DDPRUN_ALLOW_TEST_DOUBLES") != "1")
    throw DeviceError(
        fmt::format("{} is a double for ddprun's tests; take it out of {} and LD_LIBRARY_PATH",
                    description(), search.variable));
}

void SharedLibrary::open(const LibrarySearch& search,
                         const std::function<void(const SharedLibrary&)>& use) {
  const std::string given = value_of(search.variable);
  const std::string other = path_of_loaded(search.names);
  const auto names = given.empty() ? search.names : std::vector{given};
  std::vector<std::string> tried, refused, not_loaded;
  const auto usable = [&](void* handle, bool loaded_before) {
    const SharedLibrary library(handle, loaded_before);
    if (std::ranges::find(tried, library.path_) != tried.end()) return false;
    tried.push_back(library.path_);
    try {
      library.require_allowed(search);
      use(library);
    } catch (const DeviceError& error) {
      refused.emplace_back(error.what());
      return false;
    }
    if (!other.empty() && other != library.path_)
      log(LogLevel::warning, "cuda",
          "{}={} is used, but the program has loaded {} too; two copies in one process disturb "
          "each other",
          search.variable, library.path_, other);
    if (library.test_double_)
      log(LogLevel::warning, "cuda", "TEST DOUBLE in use: {}", library.path_);
    return true;
  };
  const auto found_in = [&](const std::vector<std::string>& files, int mode) {
    return std::ranges::any_of(files, [&](const std::string& file) {
      void* const handle = open_file(file, mode);
      if (handle == nullptr && mode == 0) not_loaded.emplace_back(::dlerror());
      return handle != nullptr && usable(handle, mode == RTLD_NOLOAD);
    });
  };
  if (found_in(names, RTLD_NOLOAD) || found_in(names, 0)) return;
  if (given.empty() && found_in(files_of_wheels(search), 0)) return;
  if (!refused.empty()) throw DeviceError(fmt::to_string(fmt::join(refused, "; ")));
  const std::string reasons = fmt::to_string(fmt::join(not_loaded, "; "));
  if (!given.empty())
    throw DeviceError(fmt::format("{}={} cannot be loaded: {}", search.variable, given, reasons));
  throw DeviceError(fmt::format("no {} can be loaded ({}); install it, or set {} to the file",
                                fmt::join(names, " or "), reasons, search.variable));
}

std::string SharedLibrary::description() const {
  return loaded_before_ ? path_ + " (loaded already by the program)" : path_;
}

}  // namespace ddprun
