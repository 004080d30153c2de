// StoreProtocol: the rendezvous store without its sockets: the stored values, each client's input
// and output buffers, and which connections to close. It implements the queries of store_wire.h.
//
//   StoreProtocol protocol(secret, {});
//   const uint64_t id = protocol.Connect("10.0.0.7:4711", now);
//   protocol.Receive(id, bytes, now);  // may add replies to any client's Output()
//   protocol.Sent(id, num_sent, now);
//   for (uint64_t over : protocol.TakeOver()) connections.erase(over);  // closes them
//
// Everything is bounded: values, keys, connections, the bytes of incomplete queries and unread
// replies, and how long a client may leave them so or stay silent. A client that exceeds a bound
// loses its connection, whether it is a member or not; stored values stay.
#ifndef TANDEM_COMMON_COMM_STORE_PROTOCOL_H_
#define TANDEM_COMMON_COMM_STORE_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/comm/store_wire.h"

namespace tandem::comm {

struct StoreLimits {
  size_t max_keys = 1 << 16;
  // Total of keys and values; some hundred ranks in some hundred groups use about a megabyte.
  size_t max_bytes = 64 << 20;
  // Total of all clients' incomplete queries and unread replies.
  size_t max_buffered_bytes = 64 << 20;
  size_t max_clients = 4096;
  size_t max_strangers = 2048;                      // clients without a proof, within max_clients
  absl::Duration proof_time = absl::Seconds(5);     // from connecting to the proof
  absl::Duration message_time = absl::Seconds(30);  // from a message's first byte to its last
  absl::Duration idle_time = kStoreIdleTime;
};

// One thread.
class StoreProtocol {
 public:
  StoreProtocol(std::string secret, const StoreLimits& limits)
      : limits_(limits), secret_(std::move(secret)) {}

  // Adds a client; `name` is its address. If there are too many, evicts the stranger least advanced
  // in its proof (the oldest of several), else the client idle longest, else the new one.
  uint64_t Connect(std::string name, absl::Time now);
  void Receive(uint64_t id, absl::string_view bytes, absl::Time now);
  // Call when the client's connection is gone.
  void Disconnect(uint64_t id);

  // Bytes to send to the client; Sent() removes them from the front.
  absl::string_view Output(uint64_t id) const { return clients_.at(id).out; }
  void Sent(uint64_t id, size_t num_bytes, absl::Time now);
  // Whether to read from the client: false while it leaves its replies unread, and once it is to be
  // closed.
  bool IsHeard(uint64_t id) const {
    const Client& client = clients_.at(id);
    return !client.over && client.out.size() <= kMaxOutput;
  }

  // Replaces the secret; drops the stored values and closes every member, both of the old secret.
  void SetSecret(std::string secret, absl::Time now);
  // Evicts clients whose time is over. Returns when the next one expires.
  absl::Time Expire(absl::Time now);
  // Makes room by evicting a stranger. False if there is none.
  bool EvictStranger();
  // Returns and forgets the clients whose connections are to be closed. Before this, try to send
  // their Output().
  std::vector<uint64_t> TakeOver();

  // For tests: bytes of keys and values, and of incomplete queries and unread replies.
  size_t stored_bytes() const { return stored_bytes_; }
  size_t buffered_bytes() const { return buffered_bytes_; }
  size_t num_clients() const { return clients_.size(); }

 private:
  // Room for the largest reply and some small ones.
  static constexpr size_t kMaxOutput = kMaxStoreString + (64 << 10);

  struct Client {
    std::string name;
    bool validated = false;
    bool proven = false;  // has proven that it knows the secret, or there is none
    bool over = false;    // its connection is to be closed
    std::string nonces;   // the client's and ours, once it has requested a challenge
    std::string in;
    std::string out;
    std::vector<std::string> waits_for;  // keys that do not exist yet
    size_t counted_bytes = 0;            // of the last three
    absl::Time came;
    absl::Time asked;                               // when its last complete query arrived
    absl::Time in_since = absl::InfiniteFuture();   // since when its query is incomplete
    absl::Time out_since = absl::InfiniteFuture();  // since when it has read none of its replies
  };
  class Reader;

  absl::Time DeadlineOf(const Client& client) const;
  void Answer(Client& client, absl::Time now);
  void AnswerOne(Reader& reader, Client& client, absl::Time now);
  void Judge(Client& client, const std::string& proof);
  void Set(const std::string& key, std::string value, Client& writer, absl::Time now);
  void Count(Client& client, absl::Time now);
  void Refuse(Client& client, absl::string_view why);
  bool EvictIdle();

  const StoreLimits limits_;
  std::string secret_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Client> clients_;  // in order of arrival
  std::map<std::string, std::string> values_;
  size_t stored_bytes_ = 0;
  size_t buffered_bytes_ = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_PROTOCOL_H_
