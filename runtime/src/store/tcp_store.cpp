// SPDX-License-Identifier: MIT
// A Store on a TCPStore server; see tcp_store.h and PROTOCOL.md.
#include <ddprun/error.h>
#include <ddprun/tcp_store.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <type_traits>

#include <fmt/core.h>

#include "net/endpoint.h"
#include "store/missing_keys.h"
#include "store/store_connection.h"

namespace ddprun {
namespace {

// How long a wait that has timed out goes on to find out which keys are missing.
constexpr std::chrono::milliseconds kNamingTime{250};
// How long an add whose connection was closed looks for the reason.
constexpr std::chrono::milliseconds kReasonTime{1000};
// Requests sent before their answers are read: less than sockets buffer, so that neither side
// waits for the other to read.
constexpr std::size_t kWindowBytes = std::size_t{16} << 10;

/// A value that nobody stores.
const std::string& absent_mark() {
  static const std::string mark = [] {
    std::random_device random;
    return fmt::format("ddprun-absent-{:08x}{:08x}{:08x}", random(), random(), random());
  }();
  return mark;
}

std::string begin(Operation operation) {
  std::string request;
  put_opcode(request, Dialect::torch_2x, operation);
  return request;
}

/// PyTorch's clients put a slash before every key, so do we.
void put_key(std::string& request, std::string_view key) {
  if (key.size() + 1 > kMaxKeyBytes)
    throw UsageError(fmt::format("[store] key {} has {} bytes (at most {})", quote_key(key),
                                 key.size(), kMaxKeyBytes - 1));
  put_u64(request, key.size() + 1);
  request += '/';
  request += key;
}

void put_value(std::string& request, std::string_view key, std::string_view value) {
  if (value.size() > kMaxValueBytes)
    throw UsageError(fmt::format("[store] value of key {} has {} bytes (at most {})",
                                 quote_key(key), value.size(), kMaxValueBytes));
  put_bytes(request, value);
}

void put_count(std::string& request, std::size_t count) {
  if (count > kMaxKeyCount)
    throw UsageError(fmt::format("[store] {} keys in one call (at most {})", count, kMaxKeyCount));
  put_u64(request, count);
}

std::string request_of(Operation operation, std::span<const std::string> keys) {
  auto request = begin(operation);
  put_count(request, keys.size());
  for (const std::string& key : keys) put_key(request, key);
  return request;
}

/// Reads every key; empty where it does not exist. A GET cannot tell a missing key from an empty
/// value (or is answered by closing), but a COMPARE_SET that expects what nobody stores can, and
/// changes nothing.
std::vector<std::optional<std::string>> read_keys(StoreConnection& connection,
                                                  std::span<const std::string> keys,
                                                  Deadline deadline) {
  const std::string& absent = absent_mark();
  std::vector<std::optional<std::string>> values;
  for (std::size_t sent = 0; values.size() < keys.size();) {
    std::string requests;
    for (; sent < keys.size() && requests.size() < kWindowBytes; ++sent) {
      put_opcode(requests, Dialect::torch_2x, Operation::compare_set);
      put_key(requests, keys[sent]);
      put_bytes(requests, absent);
      put_bytes(requests, absent);
    }
    connection.send(requests, deadline);
    while (values.size() < sent) {
      auto reply = connection.receive(Operation::compare_set, deadline);
      auto& value = values.emplace_back(std::move(reply.values[0]));
      if (*value == absent) value.reset();
    }
  }
  return values;
}

/// Which of the keys a wait that has timed out still misses; all of them if the server does not
/// say soon.
std::vector<std::string> missing_keys(StoreConnection& connection,
                                      std::span<const std::string> keys) {
  std::string requests;
  for (const std::string& key : keys) requests += request_of(Operation::check, {&key, 1});
  std::vector<std::string> missing;
  try {
    const auto ready = connection.check_each(requests, keys.size(), Deadline::after(kNamingTime));
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (!ready[i]) missing.push_back(keys[i]);
  } catch (const TimeoutError&) {
    missing.assign(keys.begin(), keys.end());
  }
  return missing;
}

/// Lets one thread at a time use the connection, in the order in which they came: one that polls
/// must not keep the others out.
class Turns {
 public:
  bool take(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = next_ticket_++;
    queue_.push_back(ticket);
    const auto is_first = [&] { return queue_.front() == ticket; };
    while (!is_first() && !deadline.expired())
      moved_.wait_for(lock, deadline.remaining(), is_first);
    if (is_first()) return true;
    std::erase(queue_, ticket);
    return false;
  }

  void give_back() {
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    moved_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::deque<std::uint64_t> queue_;  // guarded by mutex_; the first has the connection
  std::uint64_t next_ticket_ = 0;    // guarded by mutex_
};

class Turn {
 public:
  Turn(Turns& turns, Deadline deadline) : turns_(turns), granted_(turns.take(deadline)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (granted_) turns_.give_back();
  }
  bool granted() const { return granted_; }

 private:
  Turns& turns_;
  const bool granted_;
};

class TcpStore final : public Store {
 public:
  TcpStore(const TcpStoreOptions& options, Deadline deadline)
      : options_(options),
        server_(host_and_port(options.host, options.port)),
        connection_(options.host, options.port, deadline) {}

  void set(std::string_view key, std::string_view value) override {
    auto request = begin(Operation::set);
    put_key(request, key);
    put_value(request, key, value);
    exchange("set", request, Operation::set);
  }

  std::string get(std::string_view key, Deadline deadline) override {
    const std::string wanted(key);
    return std::move(get_all("get", {&wanted, 1}, deadline)[0]);
  }

  std::optional<std::string> try_get(std::string_view key) override {
    const std::string wanted(key);
    // PyTorch's server lets waiters go on a COMPARE_SET that stored nothing, so a missing key must
    // not get one.
    if (!check({&wanted, 1})) return std::nullopt;
    const Deadline deadline = request_deadline();
    return with_connection("try_get", deadline, [&](StoreConnection& connection) {
      return std::move(read_keys(connection, {&wanted, 1}, deadline)[0]);
    });
  }

  std::int64_t add(std::string_view key, std::int64_t delta) override {
    auto request = begin(Operation::add);
    put_key(request, key);
    put_i64(request, delta);
    try {
      return exchange("add", request, Operation::add).number;
    } catch (const ConnectionError&) {
      throw_if_no_number(key);
      throw;
    }
  }

  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    auto request = begin(Operation::compare_set);
    put_key(request, key);
    put_value(request, key, expected);
    put_value(request, key, desired);
    auto reply = exchange("compare_set", request, Operation::compare_set);
    return std::move(reply.values[0]);
  }

  void append(std::string_view key, std::string_view tail) override {
    auto request = begin(Operation::append);
    put_key(request, key);
    put_value(request, key, tail);
    exchange("append", request, Operation::append);
  }

  bool erase(std::string_view key) override {
    auto request = begin(Operation::erase);
    put_key(request, key);
    return exchange("erase", request, Operation::erase).number > 0;
  }

  bool check(std::span<const std::string> keys) override {
    const auto request = request_of(Operation::check, keys);
    return exchange("check", request, Operation::check).number == kKeysReady;
  }

  void wait(std::span<const std::string> keys, Deadline deadline) override {
    await("wait", keys, deadline);
  }

  std::vector<std::string> multi_get(std::span<const std::string> keys,
                                     Deadline deadline) override {
    return get_all("multi_get", keys, deadline);
  }

  void multi_set(std::span<const std::pair<std::string, std::string>> entries) override {
    auto request = begin(Operation::multi_set);
    put_count(request, entries.size());
    for (const auto& [key, value] : entries) {
      put_key(request, key);
      put_value(request, key, value);
    }
    if (request.size() > kMaxMessageBytes)
      throw UsageError(fmt::format("[store] multi_set: {} keys are {} bytes (at most {})",
                                   entries.size(), request.size(), kMaxMessageBytes));
    exchange("multi_set", request, Operation::multi_set);
  }

  std::int64_t num_keys() override {
    return exchange("num_keys", begin(Operation::num_keys), Operation::num_keys).number;
  }

 private:
  Deadline request_deadline() const { return Deadline::after(options_.request_timeout); }

  template <class Fn>
  std::invoke_result_t<Fn, StoreConnection&> with_connection(std::string_view operation,
                                                             Deadline deadline, Fn fn);
  Message exchange(std::string_view operation, const std::string& request, Operation reply);
  void await(std::string_view operation, std::span<const std::string> keys, Deadline deadline);
  std::vector<std::string> get_all(std::string_view operation, std::span<const std::string> keys,
                                   Deadline deadline);
  void throw_if_no_number(std::string_view key);

  const TcpStoreOptions options_;
  const std::string server_;
  Turns turns_;
  StoreConnection connection_;  // of whoever has the turn
};

/// Runs fn(connection) alone, and says in every error what was asked of whom.
template <class Fn>
std::invoke_result_t<Fn, StoreConnection&> TcpStore::with_connection(std::string_view operation,
                                                                     Deadline deadline, Fn fn) {
  const Turn turn(turns_, deadline);
  if (!turn.granted())
    throw TimeoutError(
        fmt::format("[store] {}: another thread uses this connection to {}; give a "
                    "thread that waits long its own store",
                    operation, server_));
  try {
    return fn(connection_);
  } catch (const TimeoutError&) {
    throw TimeoutError(fmt::format(
        "[store] {}: {} did not answer in time; it is stopped or cut off", operation, server_));
  } catch (const ConnectionError& e) {
    throw ConnectionError(
        fmt::format("[store] {}: no connection to {} any more: {}; has the job's "
                    "first node ended?",
                    operation, server_, e.what()));
  }
}

Message TcpStore::exchange(std::string_view operation, const std::string& request,
                           Operation reply) {
  const Deadline deadline = request_deadline();
  return with_connection(operation, deadline, [&](StoreConnection& connection) {
    connection.send(request, deadline);
    return connection.receive(reply, deadline);
  });
}

void TcpStore::await(std::string_view operation, std::span<const std::string> keys,
                     Deadline deadline) {
  const auto start = Deadline::Clock::now();
  const auto request = request_of(Operation::wait, keys);
  const auto missing = with_connection(operation, deadline, [&](StoreConnection& connection) {
    if (connection.wait(request, deadline)) return std::vector<std::string>();
    return missing_keys(connection, keys);
  });
  if (!missing.empty()) throw_missing(operation, missing, server_, Deadline::Clock::now() - start);
}

std::vector<std::string> TcpStore::get_all(std::string_view operation,
                                           std::span<const std::string> keys, Deadline deadline) {
  for (;;) {
    await(operation, keys, deadline);
    const Deadline answer = request_deadline();  // the keys are there: the wait is over
    auto found = with_connection(operation, answer, [&](StoreConnection& connection) {
      return read_keys(connection, keys, answer);
    });
    std::vector<std::string> values;
    for (auto& value : found) {
      if (value) values.push_back(std::move(*value));
    }
    if (values.size() == keys.size()) return values;  // else one was erased in between
  }
}

/// The server can only close the connection when it is asked to add to a text. If that was it, the
/// caller is told, on a new connection.
void TcpStore::throw_if_no_number(std::string_view key) {
  std::optional<std::string> value;
  try {
    const Deadline deadline = Deadline::after(kReasonTime);
    StoreConnection fresh(options_.host, options_.port, deadline);
    const std::string wanted(key);
    value = std::move(read_keys(fresh, {&wanted, 1}, deadline)[0]);
    if (!value || parse_counter(*value)) return;
    const Turn turn(turns_, deadline);
    if (!turn.granted()) return;
    connection_ = std::move(fresh);
  } catch (const Error&) {
    return;  // the first error is the one to report
  }
  throw UsageError(fmt::format("[store] add: key {} holds {}, which is not a number",
                               quote_key(key), quote_key(*value)));
}

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options, Deadline deadline) {
  return std::make_shared<TcpStore>(options, deadline);
}

}  // namespace ddprun
