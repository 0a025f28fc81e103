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

/// A handle if the process has it already.
void* find_loaded(const std::string& name) { return open_file(name, RTLD_NOLOAD); }

std::string path_of(void* handle) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr)
    return "a file without a name";
  std::error_code error;
  const fs::path real = fs::canonical(map->l_name, error);
  return error ? map->l_name : real.string();
}

std::string value_of(const char* variable) { return get_env(variable).value_or(""); }

void add_python_folders_below(const fs::path& lib, std::vector<std::string>& folders) {
  std::error_code error;
  std::vector<fs::path> pythons;
  for (fs::directory_iterator at(lib, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with("python3")) pythons.push_back(at->path());
  std::sort(pythons.begin(), pythons.end());
  for (const fs::path& python : pythons)
    for (const char* folder : {"site-packages", "dist-packages"})
      if (fs::is_directory(python / folder, error)) folders.push_back(python / folder);
}

std::vector<std::string> files_of_wheels(const LibrarySearch& search) {
  std::vector<std::string> files;
  const auto folders = python_package_folders();
  for (const std::string& path : search.wheel_paths)
    for (const std::string& folder : folders) {
      std::error_code ignored;
      if (fs::exists(fs::path(folder) / path, ignored)) files.push_back(fs::path(folder) / path);
    }
  return files;
}

}  // namespace

std::vector<std::string> python_package_folders() {
  std::vector<std::string> folders;
  for (const char* root : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto value = value_of(root); !value.empty())
      add_python_folders_below(fs::path(value) / "lib", folders);
  if (const auto home = value_of("HOME"); !home.empty())
    add_python_folders_below(fs::path(home) / ".local/lib", folders);
  add_python_folders_below("/usr/local/lib", folders);
  add_python_folders_below("/usr/lib", folders);
  std::error_code ignored;
  if (const char* debian = "/usr/lib/python3/dist-packages"; fs::is_directory(debian, ignored))
    if (std::find(folders.begin(), folders.end(), debian) == folders.end())
      folders.emplace_back(debian);
  return folders;
}

SharedLibrary::SharedLibrary(void* handle, bool loaded_before)
    : handle_(handle),
      loaded_before_(loaded_before),
      test_double_(::dlsym(handle, "ddprun_test_double") != nullptr),
      path_(path_of(handle)) {}

SharedLibrary SharedLibrary::open(const LibrarySearch& search, const char* component) {
  const std::string override_path = value_of(search.variable);
  const auto names = override_path.empty() ? search.names : std::vector{override_path};
  std::vector<std::string> reasons;
  const auto first_of = [&]() -> SharedLibrary {
    for (const std::string& name : names)
      if (void* const handle = find_loaded(name)) return {handle, true};
    const auto try_all = [&](const std::vector<std::string>& candidates) -> void* {
      for (const std::string& candidate : candidates) {
        if (void* const handle = open_file(candidate)) return handle;
        reasons.emplace_back(::dlerror());
      }
      return nullptr;
    };
    void* handle = try_all(names);
    if (handle == nullptr && override_path.empty()) handle = try_all(files_of_wheels(search));
    if (handle != nullptr) return {handle, false};
    throw DeviceError(override_path.empty()
                          ? fmt::format("[{}] loading: not found: {}; install it, or set {} to the "
                                        "file",
                                        component, fmt::join(reasons, "; "), search.variable)
                          : fmt::format("[{}] loading: {}={} cannot be loaded: {}", component,
                                        search.variable, override_path, reasons.front()));
  };
  SharedLibrary library = first_of();
  if (library.test_double_) {
    if (value_of("DDPRUN_ALLOW_TEST_DOUBLES") != "1")
      throw DeviceError(
          fmt::format("[{}] loading: {} is a double for tests, which computes nothing "
                      "on a GPU; see {} and LD_LIBRARY_PATH",
                      component, library.description(), search.variable));
    log(LogLevel::warning, component, "TEST DOUBLE in use: {}", library.path_);
  }
  return library;
}

std::string SharedLibrary::description() const {
  return loaded_before_ ? path_ + " (loaded already by the program)" : path_;
}

}  // namespace ddprun
