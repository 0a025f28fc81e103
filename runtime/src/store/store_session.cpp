// SPDX-License-Identifier: MIT
// The server's side of one connection; see store_session.h and PROTOCOL.md.
#include "store/store_session.h"

#include <utility>

#include <fmt/core.h>

#include "store/missing_keys.h"

namespace ddprun {
namespace {

// Buffers that one large value has stretched are given back.
constexpr std::size_t kKeptBytes = std::size_t{64} << 10;

}  // namespace

StoreSession::StoreSession(StoreMap& map, StoreMap::WaiterId id) : map_(map), id_(id) {}

StoreSession::~StoreSession() { map_.forget(id_); }

void StoreSession::receive(std::string_view bytes) {
  // A client of 1.13 whose wait has timed out says nothing and goes on with its next request; the
  // wait's late answer would be taken for that request's.
  if (reader_.dialect() == Dialect::torch_1_13) map_.cancel_wait(id_);
  serve(bytes);
}

void StoreSession::serve(std::string_view bytes) {
  while (unsent().size() <= kMaxUnsentBytes) {
    auto request = reader_.read(bytes);
    if (!request) return;
    if (reader_.dialect() == Dialect::torch_1_13) map_.cancel_wait(id_);
    note_owner(*request);
    apply(*request);
  }
  held_ = bytes;
}

void StoreSession::sent(std::size_t count) {
  sent_ += count;
  if (sent_ == out_.size()) {
    sent_ = 0;
    if (out_.capacity() > kKeptBytes)
      out_ = {};
    else
      out_.clear();
  } else if (sent_ > out_.size() / 2) {
    out_.erase(0, std::exchange(sent_, 0));
  }
  if (!held_.empty() && unsent().size() <= kMaxUnsentBytes) serve(std::exchange(held_, {}));
}

void StoreSession::on_change(const StoreMap::Change& change) {
  if (unsent().size() > kMaxUnsentBytes) throw ProtocolError("it watches a key and does not read");
  put_u8(out_, static_cast<std::uint8_t>(change.kind));
  put_bytes(out_, change.key);
  put_bytes(out_, change.before);
  put_bytes(out_, change.after);
}

void StoreSession::apply(Request& request) {
  auto& [keys, values, number] = static_cast<Message&>(request);
  switch (request.operation) {
    case Operation::validate:
      break;  // the reader has consumed it
    case Operation::ping:
      put_u32(out_, static_cast<std::uint32_t>(number));
      break;
    case Operation::set:
      map_.set(keys[0], std::move(values[0]));
      break;
    case Operation::compare_set:
      put_bytes(out_, map_.compare_set(keys[0], values[0], std::move(values[1])));
      break;
    case Operation::get: {
      const std::string* value = map_.find(keys[0]);
      put_bytes(out_, value ? *value : std::string_view());
      break;
    }
    case Operation::add: {
      const auto sum = map_.add(keys[0], number);
      if (!sum)
        throw ProtocolError(fmt::format("ADD to key {}, which is no number", quote_key(keys[0])));
      put_i64(out_, *sum);
      break;
    }
    case Operation::check:
      put_u8(out_, map_.contains_all(keys) ? kKeysReady : kKeysNotReady);
      break;
    case Operation::wait:
      if (map_.wait(id_, keys)) on_released();
      break;
    case Operation::cancel_wait:
      map_.cancel_wait(id_);
      put_u8(out_, kWaitCanceled);
      break;
    case Operation::num_keys:
      put_i64(out_, map_.num_keys());
      break;
    case Operation::erase:
      put_i64(out_, map_.erase(keys[0]) ? 1 : 0);
      break;
    case Operation::append:
      if (!map_.append(keys[0], values[0]))
        throw ProtocolError(fmt::format("APPEND makes key {} too long", quote_key(keys[0])));
      break;
    case Operation::multi_get:
      apply_multi_get(request);
      break;
    case Operation::watch_key:
      map_.watch(id_, keys[0]);
      put_u8(out_, kWatching);
      break;
    case Operation::multi_set:
      for (std::size_t i = 0; i < keys.size(); ++i) map_.set(keys[i], std::move(values[i]));
      break;
  }
}

void StoreSession::apply_multi_get(const Request& request) {
  // One key named a thousand times would turn a short request into gigabytes.
  std::size_t total = 0;
  for (const std::string& key : request.keys) {
    if (const std::string* value = map_.find(key)) total += value->size();
  }
  if (total > kMaxMessageBytes)
    throw ProtocolError(fmt::format("MULTI_GET of {} bytes (at most {})", total, kMaxMessageBytes));
  for (const std::string& key : request.keys) {
    const std::string* value = map_.find(key);
    put_bytes(out_, value ? *value : std::string_view());
  }
}

void StoreSession::note_owner(const Request& request) {
  for (const std::string& key : request.keys) {
    (StoreMap::is_launcher_key(key) ? names_launcher_key_ : names_worker_key_) = true;
  }
}

}  // namespace ddprun
