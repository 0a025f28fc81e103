// SPDX-License-Identifier: MIT
// The search for a library; see shared_library.h.
#include "cuda/shared_library.h"

#include <ddprun/error.h>

#include <algorithm>
#include <filesystem>

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

/// Where packages may be installed, by an environment, by the user, by pip or by the system; found
/// without running Python.
std::vector<fs::path> python_package_folders() {
  std::vector<fs::path> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto root = value_of(variable); !root.empty())
      roots.push_back(fs::path(root) / "lib");
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

/// Null when none can be loaded; `reasons` gets why.
void* open_any(const std::vector<std::string>& candidates, std::vector<std::string>& reasons) {
  for (const std::string& candidate : candidates) {
    if (void* const handle = open_file(candidate)) return handle;
    reasons.emplace_back(::dlerror());
  }
  return nullptr;
}

}  // namespace

SharedLibrary::SharedLibrary(void* handle, bool loaded_before)
    : handle_(handle),
      loaded_before_(loaded_before),
      test_double_(::dlsym(handle, "ddprun_test_double") != nullptr),
      path_(path_of(handle)) {}

SharedLibrary SharedLibrary::open_first(const LibrarySearch& search) {
  const std::string given = value_of(search.variable);
  const auto names = given.empty() ? search.names : std::vector{given};
  for (const std::string& name : names)
    if (void* const handle = open_file(name, RTLD_NOLOAD)) return {handle, true};
  std::vector<std::string> reasons;
  void* handle = open_any(names, reasons);
  if (handle == nullptr && given.empty()) handle = open_any(files_of_wheels(search), reasons);
  if (handle != nullptr) return {handle, false};
  const std::string tried = fmt::to_string(fmt::join(reasons, "; "));
  if (!given.empty())
    throw DeviceError(fmt::format("{}={} cannot be loaded: {}", search.variable, given, tried));
  throw DeviceError(fmt::format("no {} can be loaded ({}); install it, or set {} to the file",
                                fmt::join(names, " or "), tried, search.variable));
}

SharedLibrary SharedLibrary::open(const LibrarySearch& search) {
  const std::string other = path_of_loaded(search.names);
  SharedLibrary library = open_first(search);
  if (!other.empty() && other != library.path_)
    log(LogLevel::warning, "cuda",
        "{}={} is used, but the program has loaded {} too; two copies in one process disturb each "
        "other",
        search.variable, library.path_, other);
  if (!library.test_double_) return library;
  if (value_of("DDPRUN_ALLOW_TEST_DOUBLES") != "1")
    throw DeviceError(
        fmt::format("{} is a double for ddprun's tests; take it out of {} and LD_LIBRARY_PATH",
                    library.description(), search.variable));
  log(LogLevel::warning, "cuda", "TEST DOUBLE in use: {}", library.path_);
  return library;
}

std::string SharedLibrary::description() const {
  return loaded_before_ ? path_ + " (loaded already by the program)" : path_;
}

}  // namespace ddprun
