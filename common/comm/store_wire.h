// The wire of the rendezvous store, which is that of c10d's TCPStore, so that our clients can use
// the store that torchrun serves and c10d's can use ours. Ours differ in what they promise: every
// step has a deadline, nothing is looked up in DNS but the name that was given, and failures are
// statuses.
//
// A query is a byte that says what it is, then its arguments: integers as they lie in memory,
// strings with their length (8 bytes) before them. Every connection begins with kValidate and
// kStoreMagic.
//
//   kSet key value          no answer
//   kAdd key int64          answers int64, the new value
//   kGet key                answers a string
//   kCheck count keys...    answers a byte, kReady or kNotReady
//   kWait count keys...     answers the byte kReady once all keys are there
//   kCancelWait             answers the byte kWaitCancelled, behind that of a wait that is over
//   kPing uint32            answers the same
//
// A store with a secret answers nothing else before the client has proven that it knows it; so does
// the store to the client. Nonces and proofs are 32 bytes, without a length:
//
//   kChallenge nonce        answers a nonce of its own
//   kProve proof            answers a proof
//
// Who asks for something else, or proves wrongly, is answered kStoreRefusal, and the connection is
// closed.
// A stranger's connection that is closed without an answer made place for another: the client tries
// again. A connection is closed where it asks for nothing, or waits, for kStoreIdleTime: who waits
// for longer asks again meanwhile, and who has something to ask after it connects again.
//
// The client's proof is HMAC-SHA-256 with the secret over ("store client", its nonce, the store's);
// the store's over ("store server", the same two).
#ifndef TANDEM_COMMON_COMM_STORE_WIRE_H_
#define TANDEM_COMMON_COMM_STORE_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::comm {

enum class StoreQuery : uint8_t {
  kValidate = 0,
  kSet = 1,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kCancelWait = 12,
  kPing = 13,
  kChallenge = 64,
  kProve = 65,
};

inline constexpr uint32_t kStoreMagic = 0x3C85F7CE;
inline constexpr uint8_t kReady = 0;
inline constexpr uint8_t kNotReady = 1;
inline constexpr uint8_t kWaitCancelled = 1;
// Longer ones are no rendezvous: the connection is closed.
inline constexpr uint64_t kMaxStoreKey = 4 << 10;
inline constexpr uint64_t kMaxStoreString = 1 << 20;
inline constexpr uint64_t kMaxStoreKeys = 1 << 10;  // of one query
// Of a nonce and of a proof.
inline constexpr size_t kStoreProofBytes = 32;
// In place of any answer, whatever its length: the secret is not the store's. No query has an
// answer that begins so.
inline const std::string kStoreRefusal(kStoreProofBytes, '\xff');
inline constexpr absl::Duration kStoreIdleTime = absl::Minutes(10);
inline constexpr char kStoreClient[] = "store client";
inline constexpr char kStoreServer[] = "store server";

template <typename T>
void AppendInteger(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline void AppendString(std::string& out, absl::string_view text) {
  AppendInteger<uint64_t>(out, text.size());
  out.append(text.data(), text.size());
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_STORE_WIRE_H_
