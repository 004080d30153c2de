// Wire format of the rendezvous store. It is that of c10d's TCPStore, so our clients can use the
// store that torchrun serves, and c10d's clients ours. Our implementation differs in its
// guarantees: every step has a deadline, DNS resolves only the configured name, and failures are
// statuses.
//
// A query is one byte for its type, then its arguments: integers in memory byte order, strings
// after their length (8 bytes). Every connection begins with kValidate and kStoreMagic.
//
//   kSet key value          no reply
//   kAdd key int64          returns int64, the new value
//   kGet key                returns a string
//   kCheck count keys...    returns a byte, kReady or kNotReady
//   kWait count keys...     returns the byte kReady once all keys exist
//   kCancelWait             returns the byte kWaitCancelled, after kReady if the wait was over
//   kPing uint32            returns the same uint32
//
// With a secret, client and store first prove to each other that they know it; until then the store
// accepts only these queries. Nonces and proofs are 32 bytes, without a length:
//
//   kChallenge nonce        returns the store's nonce
//   kProve proof            returns the store's proof
//
// To any other query before the proof, and to a wrong proof, the store replies kStoreRefusal and
// closes the connection. If it closes an unproven connection without a reply, it evicted it to make
// room: the client retries. It also closes connections that send nothing, or only wait, for
// kStoreIdleTime: a client repeats longer waits in time, and reconnects for a later query.
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
// A rendezvous needs no longer ones: the store closes the connection.
inline constexpr uint64_t kMaxStoreKey = 4 << 10;
inline constexpr uint64_t kMaxStoreString = 1 << 20;
inline constexpr uint64_t kMaxStoreKeys = 1 << 10;  // per query
// Size of a nonce and of a proof.
inline constexpr size_t kStoreProofBytes = 32;
// Sent in place of any reply, whatever its length: the client's secret is not the store's. No valid
// reply begins with these bytes.
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
