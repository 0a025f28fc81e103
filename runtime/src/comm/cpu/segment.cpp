// SPDX-License-Identifier: MIT
// memfd, seals and huge pages; see segment.h.
#include "comm/cpu/segment.h"

#include <ddprun/error.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun {
namespace {

// Newer than the C library's headers.
constexpr unsigned kNoExecSeal = 8;  // Linux 6.3
constexpr int kPopulateWrite = 23;   // Linux 5.14
constexpr int kCollapse = 25;        // Linux 6.1
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool huge(std::size_t bytes) { return bytes >= kHugePage; }

std::size_t length_of(std::size_t bytes) {
  return round_up(bytes == 0 ? 1 : bytes, huge(bytes) ? kHugePage : page_size());
}

[[noreturn]] void refuse(std::size_t bytes, std::string_view step, int error) {
  throw DeviceError(
      fmt::format("[cpu] shared memory of {} bytes: {}: {}; free memory or ask for less", bytes,
                  step, std::strerror(error)));
}

UniqueFd make_file(std::size_t bytes) {
  int fd = ::memfd_create("ddprun", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create("ddprun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) refuse(bytes, "memfd_create", errno);
  return UniqueFd(fd);
}

// Huge pages need an address aligned to them: reserve more, map inside, give back the rest.
std::byte* map_file(int fd, std::size_t bytes) {
  const std::size_t length = length_of(bytes);
  const std::size_t slack = huge(bytes) ? kHugePage : 0;
  void* const area = ::mmap(nullptr, length + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) refuse(bytes, "mmap", errno);
  auto* const start = static_cast<std::byte*>(area);
  const auto address = reinterpret_cast<std::uintptr_t>(area);
  const std::size_t before = slack == 0 ? 0 : round_up(address, kHugePage) - address;
  std::byte* const data = start + before;
  if (::mmap(data, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(area, length + slack);
    refuse(bytes, "mmap", error);
  }
  if (before > 0) ::munmap(start, before);
  if (slack > before) ::munmap(data + length, slack - before);
  if (huge(bytes)) ::madvise(data, length, MADV_HUGEPAGE);
  return data;
}

// Where the kernel gives huge pages only on demand (its default for shared memory): one small page
// each, to be collapsed, costs a twentieth of filling all small pages first.
void make_pages_huge(std::byte* data, std::size_t length) {
  for (std::size_t at = 0; at < length; at += kHugePage)
    ::madvise(data + at, page_size(), kPopulateWrite);
  ::madvise(data, length, kCollapse);
}

void make_resident(int fd, std::byte* data, std::size_t bytes) {
  const std::size_t length = length_of(bytes);
  if (huge(bytes)) make_pages_huge(data, length);  // else small pages: slower, not wrong
  if (::madvise(data, length, kPopulateWrite) == 0) return;
  if (errno != EINVAL) refuse(bytes, "reserving it", errno);
  if (::fallocate(fd, 0, 0, static_cast<off_t>(length)) != 0)  // Linux before 5.14
    refuse(bytes, "reserving it", errno);
}

}  // namespace

std::shared_ptr<Segment> Segment::create(std::size_t bytes, UniqueFd& fd) {
  // Reserving more than the machine has would call the out-of-memory killer instead of failing.
  const auto machine = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page_size();
  if (bytes > machine) refuse(bytes, fmt::format("the machine has {}", machine), ENOMEM);
  fd = make_file(bytes);
  if (::ftruncate(fd.get(), static_cast<off_t>(length_of(bytes))) != 0)
    refuse(bytes, "ftruncate", errno);
  auto segment = std::make_shared<Segment>(map_file(fd.get(), bytes), length_of(bytes));
  make_resident(fd.get(), segment->data(), bytes);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refuse(bytes, "sealing it", errno);
  return segment;
}

std::shared_ptr<Segment> Segment::map(int fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) refuse(bytes, "fstat", errno);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<std::size_t>(info.st_size) < length_of(bytes))
    refuse(bytes, "the peer's file is too small or not sealed", EINVAL);
  return std::make_shared<Segment>(map_file(fd, bytes), length_of(bytes));
}

Segment::~Segment() { ::munmap(data_, length_); }

}  // namespace ddprun
