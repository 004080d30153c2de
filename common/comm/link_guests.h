// LinkGuests: accepted connections that have not authenticated yet while a group forms. A rank
// sends its greeting, with a proof, as soon as it is connected. Number and lifetime of
// unauthenticated connections are bounded; when there is no room, a new one evicts the oldest.
//
//   LinkGuests guests(rank, secret, nonce, links);
//   num_admitted += guests.Add(std::move(fd), "10.0.0.7:4711", absl::Now());
//   num_admitted += guests.Hear(index);  // its socket is readable
#ifndef TANDEM_COMMON_COMM_LINK_GUESTS_H_
#define TANDEM_COMMON_COMM_LINK_GUESTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/host/file_descriptor.h"
#include "common/security/secret.h"

namespace tandem::comm {

// How long an unauthenticated connection is kept, and how many of them.
inline constexpr absl::Duration kGreetingTime = absl::Seconds(5);
inline constexpr size_t kMaxGuests = 256;

// First message on a connection: the sender's rank, and the proof that it read the store and knows
// the group's secret.
struct Greeting {
  int32_t rank = -1;
  std::array<char, security::kSecretBytes> proof = {};
};
static_assert(sizeof(Greeting) == sizeof(int32_t) + security::kSecretBytes);

// Proof that rank `from` sends to rank `to`, which has put `nonce` in the store. Replaying it is
// useless: each rank is admitted once.
std::string LinkProof(const std::string& secret, const std::string& nonce, int from, int to);

// One thread. Constructor arguments passed by reference must outlive it.
class LinkGuests {
 public:
  // `links`, by rank, receives the admitted connections: ranks above `rank`, each once.
  LinkGuests(int rank, const std::string& secret, const std::string& nonce,
             std::vector<host::FileDescriptor>& links)
      : rank_(rank), secret_(secret), nonce_(nonce), links_(links) {}

  // Takes a non-blocking connection and reads what has already arrived. `name`: its address, for
  // errors. Returns whether it was admitted at once.
  bool Add(host::FileDescriptor fd, std::string name, absl::Time now);
  // Reads from guest `index`, whose socket is readable; returns whether it was admitted. The guest
  // may be gone then, but indices stay valid until Sweep().
  bool Hear(size_t index);
  // Removes closed guests and refuses those that have not sent a full greeting in time.
  void Sweep(absl::Time now);

  size_t size() const { return guests_.size(); }
  int fd(size_t index) const { return guests_[index].fd.get(); }
  // Frees a descriptor by refusing the oldest guest. False if there is none. Call after Sweep().
  bool RefuseOldest();

  // Describes the refused connections, for an error message.
  std::string Refused() const;

 private:
  struct Guest {
    host::FileDescriptor fd;
    std::string name;
    Greeting greeting;
    size_t heard = 0;  // bytes of the greeting received
    absl::Time until;  // deadline for the greeting
  };

  bool Hear(Guest& guest);
  void Refuse(Guest& guest);

  const int rank_;
  const std::string& secret_;
  const std::string& nonce_;
  std::vector<host::FileDescriptor>& links_;
  std::deque<Guest> guests_;  // oldest first
  int num_refused_ = 0;
  std::string last_refused_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_GUESTS_H_
