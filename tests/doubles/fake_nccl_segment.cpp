// SPDX-License-Identifier: MIT
#include "doubles/fake_nccl_segment.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "doubles/futex.h"

namespace ddprun::doubles {
namespace {

/// What a unique id says.
struct Place {
  int pid;
  int file;
  std::uint64_t nonce;
};

Place place_of(const NcclUniqueId& id) {
  Place place;
  std::memcpy(&place, id.internal, sizeof place);
  return place;
}

/// What this process has of segments, by nonce.
struct Open {
  std::mutex mutex;
  std::map<std::uint64_t, int> made;                         // files of ids; guarded by mutex
  std::map<std::uint64_t, std::weak_ptr<Segment>> segments;  // guarded by mutex
};

Open& open_segments() {
  static auto& open = *new Open;
  return open;
}

}  // namespace

NcclUniqueId Segment::make_id() {
  std::random_device random;
  Place place = {::getpid(), ::memfd_create("fake-nccl", MFD_CLOEXEC),
                 (std::uint64_t{random()} << 32) | random()};
  if (place.file < 0 || ::pwrite(place.file, &place.nonce, sizeof place.nonce, 0) < 0) std::abort();
  const std::lock_guard lock(open_segments().mutex);
  open_segments().made[place.nonce] = place.file;
  NcclUniqueId id = {};
  std::memcpy(id.internal, &place, sizeof place);
  return id;
}

void Segment::drop_id(const NcclUniqueId& id) {
  const Place place = place_of(id);
  const std::lock_guard lock(open_segments().mutex);
  if (open_segments().made.erase(place.nonce) > 0) ::close(place.file);
}

std::shared_ptr<Segment> Segment::open(const NcclUniqueId& id, int size) {
  const Place place = place_of(id);
  const std::lock_guard lock(open_segments().mutex);
  std::weak_ptr<Segment>& known = open_segments().segments[place.nonce];
  if (auto segment = known.lock()) return segment;
  const std::string path =
      "/proc/" + std::to_string(place.pid) + "/fd/" + std::to_string(place.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::uint64_t nonce = 0;
  const bool right =
      file >= 0 && ::pread(file, &nonce, sizeof nonce, 0) == sizeof nonce && nonce == place.nonce;
  std::shared_ptr<Segment> segment;
  if (right) known = segment = std::make_shared<Segment>(file, size);
  if (file >= 0) ::close(file);
  return segment;
}

Segment::Segment(int file, int size)
    : size_(size), bytes_(sizeof(Header) + static_cast<std::size_t>(size) * kSlotBytes) {
  if (::ftruncate(file, static_cast<off_t>(bytes_)) != 0) std::abort();
  void* at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) std::abort();
  header_ = static_cast<Header*>(at);  // zeros are its first state
  slots_ = static_cast<std::byte*>(at) + sizeof(Header);
}

Segment::~Segment() { ::munmap(header_, bytes_); }

void Segment::pass(Barrier& barrier, const std::function<void()>& check) {
  const std::uint32_t round = barrier.round.load();
  if (barrier.arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(size_)) {
    barrier.arrived.store(0);
    barrier.round.fetch_add(1);
    futex_wake_all(barrier.round);
    return;
  }
  while (barrier.round.load() == round) {
    check();
    futex_wait(barrier.round, round);
  }
}

bool Segment::dead(int rank) {
  const int pid = member(rank).pid.load();
  if (pid == 0 || pid == ::getpid()) return false;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return true;
  const auto name_end = line.rfind(')');
  const char state = name_end + 2 < line.size() ? line[name_end + 2] : 'X';
  return state == 'Z' || state == 'X';
}

}  // namespace ddprun::doubles
