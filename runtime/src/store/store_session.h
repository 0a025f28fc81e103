// SPDX-License-Identifier: MIT
// The server's side of one connection without its socket: bytes in, bytes out.
#pragma once

#include <string>
#include <string_view>

#include "store/store_map.h"
#include "store/wire.h"

namespace ddprun {

/// Threads: not thread-safe; all sessions of one map belong to one thread.
/// Owns:    its place among the map's waiters. The map must outlive it.
class StoreSession {
 public:
  /// A client that leaves more answers than this unread is not served until it reads.
  static constexpr std::size_t kMaxUnsentBytes = std::size_t{1} << 20;

  StoreSession(StoreMap& map, StoreMap::WaiterId id);
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;
  ~StoreSession();

  /// Applies what the client sent, when wants_input(). Throws: ProtocolError: close it.
  void receive(std::string_view bytes);
  /// Has a request begun that is not complete yet?
  bool is_mid_request() const { return reader_.is_mid_request(); }
  bool wants_input() const { return held_.empty() && unsent().size() <= kMaxUnsentBytes; }

  /// Answers to be sent, then sent(): how many bytes of them have been. Throws: ProtocolError.
  std::string_view unsent() const { return std::string_view(out_).substr(sent_); }
  void sent(std::size_t count);

  /// The map says that this session's wait has ended.
  void on_released() { put_u8(out_, kStopWaiting); }
  /// A key that it watches has changed. Throws: ProtocolError when it does not read.
  void on_change(const StoreMap::Change& change);
  /// Has this client named only keys of the launchers, and at least one?
  bool is_launcher() const { return names_launcher_key_ && !names_worker_key_; }

 private:
  void serve(std::string_view bytes);
  void apply(Request& request);
  void apply_multi_get(const Request& request);
  void note_owner(const Request& request);

  StoreMap& map_;
  const StoreMap::WaiterId id_;
  RequestReader reader_;
  std::string held_;  // input that came while too many answers were unsent
  std::string out_;
  std::size_t sent_ = 0;  // of out_
  bool names_launcher_key_ = false;
  bool names_worker_key_ = false;
};

}  // namespace ddprun
