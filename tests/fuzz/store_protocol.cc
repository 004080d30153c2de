// What clients of the rendezvous store send it, over several connections, with and without a
// secret: nothing is stored by who has not proven that he knows it, and everything stays bounded.
//
// An input is a byte whose lowest bit says whether there is a secret, then steps: a byte for what
// is done, one for the client, a length of two bytes, and the bytes that the client sends.
#include "common/comm/store_protocol.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/security/secret.h"

namespace {

using tandem::comm::StoreLimits;
using tandem::comm::StoreProtocol;
using tandem::comm::StoreQuery;

enum class Step : uint8_t { kReceive, kConnect, kDisconnect, kSent, kWait, kProve, kNewSecret };
constexpr int kNumSteps = 7;
constexpr char kSecret[] = "a secret of the members";
constexpr size_t kMaxSeats = 6;

StoreLimits SmallLimits() {
  StoreLimits limits;
  limits.max_keys = 8;
  limits.max_bytes = 4096;
  limits.max_buffered_bytes = 8192;
  limits.max_clients = kMaxSeats;
  limits.max_strangers = 3;
  return limits;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

class Run {
 public:
  explicit Run(bool has_secret)
      : store_(has_secret ? kSecret : "", SmallLimits()), open_(!has_secret) {}

  void Do(Step step, uint8_t seat, absl::string_view bytes) {
    uint64_t* const id = ids_.empty() ? nullptr : &ids_[seat % ids_.size()];
    if (step == Step::kConnect) {
      ids_.push_back(store_.Connect("10.0.0.7:1", now_));
    } else if (step == Step::kWait) {
      now_ += absl::Seconds(seat);
      store_.Expire(now_);
    } else if (step == Step::kNewSecret) {
      store_.SetSecret(open_ ? "" : kSecret, now_);
      Require(store_.stored_bytes() == 0);
      has_member_ = false;
    } else if (id != nullptr) {
      OfClient(step, *id, bytes);
    }
    for (const uint64_t gone : store_.TakeOver()) std::erase(ids_, gone);
    Check();
  }

 private:
  void OfClient(Step step, uint64_t id, absl::string_view bytes) {
    if (step == Step::kReceive) {
      // As the sockets do.
      if (store_.IsHeard(id)) store_.Receive(id, bytes, now_);
    } else if (step == Step::kDisconnect) {
      store_.Disconnect(id);
    } else if (step == Step::kSent) {
      store_.Sent(id, std::min(bytes.size(), store_.Output(id).size()), now_);
    } else if (step == Step::kProve) {
      Prove(id);
    }
  }

  // What a member says first, where nothing was said before.
  void Prove(uint64_t id) {
    if (!store_.Output(id).empty() || !store_.IsHeard(id)) return;
    const std::string own(tandem::comm::kStoreProofBytes, 'n');
    std::string query;
    tandem::comm::AppendInteger(query, StoreQuery::kValidate);
    tandem::comm::AppendInteger(query, tandem::comm::kStoreMagic);
    tandem::comm::AppendInteger(query, StoreQuery::kChallenge);
    store_.Receive(id, query + own, now_);
    const std::string its(store_.Output(id));
    query.clear();
    tandem::comm::AppendInteger(query, StoreQuery::kProve);
    store_.Receive(
        id, query + tandem::security::Hmac(kSecret, {tandem::comm::kStoreClient, own, its}), now_);
    has_member_ = true;
  }

  void Check() const {
    const StoreLimits limits = SmallLimits();
    Require(store_.stored_bytes() <= limits.max_bytes);
    Require(store_.buffered_bytes() <= limits.max_buffered_bytes);
    Require(store_.num_clients() == ids_.size());
    Require(ids_.size() <= limits.max_clients);
    if (!open_ && !has_member_) Require(store_.stored_bytes() == 0);
  }

  StoreProtocol store_;
  const bool open_;
  bool has_member_ = false;
  std::vector<uint64_t> ids_;
  absl::Time now_ = absl::UnixEpoch();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Run run((data[0] & 1) != 0);
  for (size_t at = 1; at + 4 <= size;) {
    uint16_t length = 0;
    std::memcpy(&length, data + at + 2, sizeof(length));
    const size_t taken = std::min<size_t>(length, size - at - 4);
    run.Do(static_cast<Step>(data[at] % kNumSteps), data[at + 1],
           {reinterpret_cast<const char*>(data + at + 4), taken});
    at += 4 + taken;
  }
  return 0;
}
