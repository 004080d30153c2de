// StoreProtocol: the rendezvous store without its sockets: what it holds, what its clients have
// said and are owed, and who of them has to go. It reads the queries of store_wire.h.
//
//   StoreProtocol protocol(secret, {});
//   const uint64_t id = protocol.Connect("10.0.0.7:4711", now);
//   protocol.Receive(id, bytes, now);            // answers lie in Output(id), of any client
//   protocol.Sent(id, num_sent, now);
//   for (uint64_t id : protocol.TakeOver()) ...  // connections to close
//
// Everything is bounded: values, keys, connections, the bytes of messages that are not complete or
// not read, and the time that a client may leave one so or be silent. Who goes over a bound loses
// his connection, whether he is a member or not; what was stored stays.
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
  // Of keys and values: some hundred ranks in some hundred groups put a megabyte there.
  size_t max_bytes = 64 << 20;
  // Of messages in part and of answers that are not read, of all clients.
  size_t max_buffered_bytes = 64 << 20;
  size_t max_clients = 4096;
  size_t max_strangers = 2048;                      // of them, those that have proven nothing
  absl::Duration proof_time = absl::Seconds(5);     // of a stranger's life
  absl::Duration message_time = absl::Seconds(30);  // from a message's first byte to its last
  absl::Duration idle_time = kStoreIdleTime;
};

// One thread.
class StoreProtocol {
 public:
  StoreProtocol(std::string secret, const StoreLimits& limits)
      : limits_(limits), secret_(std::move(secret)) {}

  // A client came: `name` is its address. Where there are too many, the one that is missed least
  // goes, which may be this one: of strangers the one that has come least far with its proof, the
  // oldest of several.
  uint64_t Connect(std::string name, absl::Time now);
  void Receive(uint64_t id, absl::string_view bytes, absl::Time now);
  // Its connection is gone.
  void Disconnect(uint64_t id);

  // What the client is owed; Sent() takes from its front.
  absl::string_view Output(uint64_t id) const { return clients_.at(id).out; }
  void Sent(uint64_t id, size_t num_bytes, absl::Time now);
  // False while it does not read its answers, and once it has to go.
  bool IsHeard(uint64_t id) const {
    const Client& client = clients_.at(id);
    return !client.over && client.out.size() <= kMaxOutput;
  }

  // From now on another secret holds; what is stored and every member are of the last one, and go.
  void SetSecret(std::string secret, absl::Time now);
  // Sends away whose time is over. Returns when there is something to send away next.
  absl::Time Expire(absl::Time now);
  // Makes room: sends a stranger away. False where there is none.
  bool EvictStranger();
  // Clients whose connections are to be closed, once what they are owed was tried to be sent; they
  // are forgotten.
  std::vector<uint64_t> TakeOver();

  // For tests: bytes of keys and values, and of messages and answers under way.
  size_t stored_bytes() const { return stored_bytes_; }
  size_t buffered_bytes() const { return buffered_bytes_; }
  size_t num_clients() const { return clients_.size(); }

 private:
  // More than an answer and what is small beside it.
  static constexpr size_t kMaxOutput = kMaxStoreString + (64 << 10);

  struct Client {
    std::string name;
    bool validated = false;
    bool proven = false;  // that it knows the secret, or there is none
    bool over = false;
    std::string nonces;  // the client's and ours, once it has asked for a challenge
    std::string in;
    std::string out;
    std::vector<std::string> waits_for;  // keys that are not there yet
    size_t counted_bytes = 0;            // of the last three
    absl::Time came;
    absl::Time asked;                               // when it last asked for something, in full
    absl::Time in_since = absl::InfiniteFuture();   // since when a message is not complete
    absl::Time out_since = absl::InfiniteFuture();  // since when it has read nothing of its answers
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
  std::map<uint64_t, Client> clients_;  // in the order in which they came
  std::map<std::string, std::string> values_;
  size_t stored_bytes_ = 0;
  size_t buffered_bytes_ = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_PROTOCOL_H_
