#include "common/comm/store_protocol.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/security/secret.h"
#include "common/telemetry/refusals.h"

namespace tandem::comm {
namespace {

// More than a client needs to send or receive before its proof.
constexpr size_t kMaxStrangerBytes = 512;
// Bytes counted per map entry besides its key and value.
constexpr size_t kEntryBytes = 128;

}  // namespace

// Takes a query's arguments from the front of a client's bytes; remembers whether they were all
// there.
class StoreProtocol::Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Integer() {
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + used_, sizeof(T));
    used_ += sizeof(T);
    return value;
  }
  std::string Key() { return String(kMaxStoreKey); }
  std::string String(uint64_t max = kMaxStoreString) {
    const auto size = Integer<uint64_t>();
    if (size > max) wrong_ = true;
    if (wrong_) return "";
    return Bytes(size);
  }
  std::string Bytes(size_t size) {
    if (!Has(size)) return "";
    std::string bytes(bytes_.substr(used_, size));
    used_ += size;
    return bytes;
  }
  void Wrong() { wrong_ = true; }

  bool usable() const { return complete_ && !wrong_; }
  bool complete() const { return complete_; }
  bool wrong() const { return wrong_; }
  size_t used() const { return used_; }

 private:
  bool Has(uint64_t size) {
    if (complete_ && bytes_.size() - used_ < size) complete_ = false;
    return complete_;
  }

  const absl::string_view bytes_;
  size_t used_ = 0;
  bool complete_ = true;
  bool wrong_ = false;
};

uint64_t StoreProtocol::Connect(std::string name, absl::Time now) {
  size_t num_open = 0, num_strangers = 0;
  for (const auto& [id, client] : clients_) {
    num_open += !client.over;
    num_strangers += !client.over && !client.proven;
  }
  if (num_strangers >= limits_.max_strangers && EvictStranger()) --num_open;
  const bool has_room = num_open < limits_.max_clients || EvictStranger() || EvictIdle();
  Client& client = clients_[next_id_];
  client.name = std::move(name);
  client.proven = secret_.empty();
  client.came = client.asked = now;
  if (!has_room) Refuse(client, "too many clients are connected");
  return next_id_++;
}

bool StoreProtocol::EvictStranger() {
  // A client halfway through its proof is likelier a member than one that has said nothing.
  const auto progress = [](const Client& client) {
    return (client.validated ? 1 : 0) + (client.nonces.empty() ? 0 : 1);
  };
  Client* last = nullptr;
  for (auto& [id, client] : clients_) {
    if (client.proven || client.over) continue;
    if (last == nullptr || progress(client) < progress(*last)) last = &client;
    if (progress(*last) == 0) break;
  }
  if (last == nullptr) return false;
  Refuse(*last, "it had not authenticated, and other clients needed its place");
  return true;
}

// Evicts the longest idle client among those with nothing pending; it reconnects for a later query.
bool StoreProtocol::EvictIdle() {
  Client* idlest = nullptr;
  for (auto& [id, client] : clients_) {
    if (client.over || !client.in.empty() || !client.out.empty() || !client.waits_for.empty())
      continue;
    if (idlest == nullptr || client.asked < idlest->asked) idlest = &client;
  }
  if (idlest == nullptr) return false;
  idlest->over = true;
  return true;
}

void StoreProtocol::Disconnect(uint64_t id) { clients_.at(id).over = true; }

void StoreProtocol::Refuse(Client& client, absl::string_view why) {
  if (client.over) return;
  telemetry::CountRefusal(telemetry::RefusedAt::kRendezvous, client.name, why);
  client.over = true;
}

std::vector<uint64_t> StoreProtocol::TakeOver() {
  std::vector<uint64_t> over;
  for (auto it = clients_.begin(); it != clients_.end();) {
    if (!it->second.over) {
      ++it;
      continue;
    }
    over.push_back(it->first);
    buffered_bytes_ -= it->second.counted_bytes;
    it = clients_.erase(it);
  }
  return over;
}

absl::Time StoreProtocol::DeadlineOf(const Client& client) const {
  const absl::Time message = std::min(client.in_since, client.out_since) + limits_.message_time;
  return std::min(
      message, client.proven ? client.asked + limits_.idle_time : client.came + limits_.proof_time);
}

absl::Time StoreProtocol::Expire(absl::Time now) {
  absl::Time next = absl::InfiniteFuture();
  for (auto& [id, client] : clients_) {
    if (client.over) continue;
    const absl::Time deadline = DeadlineOf(client);
    if (deadline > now) {
      next = std::min(next, deadline);
    } else if (!client.proven) {
      Refuse(client, "it did not authenticate in time");
    } else if (deadline < client.asked + limits_.idle_time) {
      Refuse(client, "it left a message unfinished or a response unread");
    } else {
      client.over = true;
    }
  }
  return next;
}

void StoreProtocol::SetSecret(std::string secret, absl::Time now) {
  // First process what members sent before the change: it counts for the others.
  for (auto& [id, client] : clients_) {
    if (client.proven && !client.over) Answer(client, now);
  }
  // Keeps clients without a proof: they may already know the new secret.
  for (auto& [id, client] : clients_) client.over |= client.proven;
  secret_ = std::move(secret);
  values_.clear();
  stored_bytes_ = 0;
}

void StoreProtocol::Receive(uint64_t id, absl::string_view bytes, absl::Time now) {
  Client& client = clients_.at(id);
  if (client.over) return;
  if (!client.proven && client.in.size() + bytes.size() > kMaxStrangerBytes) {
    return Refuse(client, "it sent too much before it authenticated");
  }
  client.in.append(bytes.data(), bytes.size());
  Answer(client, now);
}

void StoreProtocol::Sent(uint64_t id, size_t num_bytes, absl::Time now) {
  Client& client = clients_.at(id);
  client.out.erase(0, num_bytes);
  if (num_bytes > 0) client.out_since = now;
  Answer(client, now);
}

// Answers the queries that are there in full, unless the client has much to read yet.
void StoreProtocol::Answer(Client& client, absl::Time now) {
  size_t used = 0;
  while (!client.over && used < client.in.size() && client.out.size() <= kMaxOutput) {
    Reader reader(absl::string_view(client.in).substr(used));
    AnswerOne(reader, client, now);
    if (reader.wrong()) Refuse(client, "it does not follow the protocol");
    if (!reader.usable()) break;
    used += reader.used();
    client.asked = client.in_since = now;
  }
  client.in.erase(0, used);
  Count(client, now);
}

// Updates a client's byte counts and timers after its buffers changed.
void StoreProtocol::Count(Client& client, absl::Time now) {
  if (client.in.empty() || client.out.size() > kMaxOutput) {
    client.in_since = absl::InfiniteFuture();
  } else if (client.in_since == absl::InfiniteFuture()) {
    client.in_since = now;
  }
  if (client.out.empty()) {
    client.out_since = absl::InfiniteFuture();
  } else if (client.out_since == absl::InfiniteFuture()) {
    client.out_since = now;
  }
  size_t bytes = client.in.size() + client.out.size();
  for (const std::string& key : client.waits_for) bytes += key.size() + sizeof(key);
  buffered_bytes_ += bytes - client.counted_bytes;
  client.counted_bytes = bytes;
  if (buffered_bytes_ > limits_.max_buffered_bytes ||
      (!client.proven && client.out.size() > kMaxStrangerBytes)) {
    Refuse(client, "pending messages and responses take too much memory");
  }
  if (!client.over) return;
  // The others have their room back at once.
  buffered_bytes_ -= std::exchange(client.counted_bytes, 0);
  client.in = "";
  if (client.out != kStoreRefusal) client.out = "";
  client.in.shrink_to_fit();
  client.out.shrink_to_fit();
  client.waits_for.clear();
}

// Stores the value and replies to the clients that waited only for this key.
void StoreProtocol::Set(const std::string& key, std::string value, Client& writer, absl::Time now) {
  const auto it = values_.find(key);
  const size_t before = it == values_.end() ? 0 : kEntryBytes + key.size() + it->second.size();
  const size_t after = stored_bytes_ - before + kEntryBytes + key.size() + value.size();
  if (after > limits_.max_bytes || (it == values_.end() && values_.size() >= limits_.max_keys)) {
    return Refuse(writer, absl::StrCat("the store is full: it holds ", values_.size(), " keys, ",
                                       stored_bytes_, " bytes"));
  }
  stored_bytes_ = after;
  if (it != values_.end()) {
    it->second = std::move(value);
    return;
  }
  values_.emplace(key, std::move(value));
  for (auto& [id, client] : clients_) {
    if (client.over || client.waits_for.empty()) continue;
    std::erase(client.waits_for, key);
    if (!client.waits_for.empty()) continue;
    AppendInteger(client.out, kReady);
    client.asked = now;
    if (&client != &writer) Count(client, now);
  }
}

void StoreProtocol::AnswerOne(Reader& reader, Client& client, absl::Time now) {
  const auto query = reader.Integer<StoreQuery>();
  if (!client.validated && query != StoreQuery::kValidate) return reader.Wrong();
  if (!client.proven && query != StoreQuery::kValidate && query != StoreQuery::kChallenge &&
      query != StoreQuery::kProve) {
    client.out = kStoreRefusal;
    return Refuse(client, "it asked before it had authenticated");
  }
  switch (query) {
    case StoreQuery::kValidate:
      if (reader.Integer<uint32_t>() != kStoreMagic && reader.complete()) return reader.Wrong();
      client.validated = client.validated || reader.complete();
      return;
    case StoreQuery::kPing: {
      const auto nonce = reader.Integer<uint32_t>();
      if (reader.complete()) AppendInteger(client.out, nonce);
      return;
    }
    case StoreQuery::kChallenge: {
      std::string nonce = reader.Bytes(kStoreProofBytes);
      if (!reader.complete()) return;
      const std::string own = security::DrawSecret(kStoreProofBytes);
      client.out += own;
      client.nonces = std::move(nonce) + own;
      return;
    }
    case StoreQuery::kProve: {
      const std::string proof = reader.Bytes(kStoreProofBytes);
      if (reader.complete()) Judge(client, proof);
      return;
    }
    case StoreQuery::kSet: {
      const std::string key = reader.Key();
      std::string value = reader.String();
      if (reader.usable()) Set(key, std::move(value), client, now);
      return;
    }
    case StoreQuery::kGet: {
      const std::string key = reader.Key();
      if (!reader.usable()) return;
      const auto it = values_.find(key);
      if (it == values_.end()) return reader.Wrong();  // to be waited for first
      return AppendString(client.out, it->second);
    }
    case StoreQuery::kAdd: {
      const std::string key = reader.Key();
      const auto delta = reader.Integer<int64_t>();
      if (!reader.usable()) return;
      int64_t value = 0;
      if (const auto it = values_.find(key);
          it != values_.end() && !absl::SimpleAtoi(it->second, &value)) {
        return reader.Wrong();
      }
      value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(delta));
      Set(key, absl::StrCat(value), client, now);
      return AppendInteger(client.out, value);
    }
    case StoreQuery::kCheck:
    case StoreQuery::kWait: {
      const auto count = reader.Integer<uint64_t>();
      if (count > kMaxStoreKeys) return reader.Wrong();
      std::vector<std::string> missing;
      for (uint64_t i = 0; i < count && reader.usable(); ++i) {
        std::string key = reader.Key();
        if (values_.count(key) == 0) missing.push_back(std::move(key));
      }
      if (!reader.usable()) return;
      if (query == StoreQuery::kCheck) {
        return AppendInteger(client.out, missing.empty() ? kReady : kNotReady);
      }
      if (!client.waits_for.empty()) return reader.Wrong();
      if (missing.empty()) return AppendInteger(client.out, kReady);
      client.waits_for = std::move(missing);
      return;
    }
    case StoreQuery::kCancelWait:
      client.waits_for.clear();
      return AppendInteger(client.out, kWaitCancelled);
  }
  reader.Wrong();
}

// A proof is good for one challenge.
void StoreProtocol::Judge(Client& client, const std::string& proof) {
  const std::string nonces = std::exchange(client.nonces, "");
  const auto theirs = absl::string_view(nonces).substr(0, kStoreProofBytes);
  const auto ours = nonces.empty() ? "" : absl::string_view(nonces).substr(kStoreProofBytes);
  if (nonces.empty() || secret_.empty() ||
      !security::AreEqual(proof, security::Hmac(secret_, {kStoreClient, theirs, ours}))) {
    client.out = kStoreRefusal;
    return Refuse(client, "it does not know the group's secret");
  }
  client.out += security::Hmac(secret_, {kStoreServer, theirs, ours});
  client.proven = true;
}

}  // namespace tandem::comm
