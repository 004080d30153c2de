// LinkGuests: connections that were accepted while a group forms and have not said yet who they
// are. A rank says so, with a proof, as soon as it is connected; whoever does not is a stranger, of
// whom a bounded number is kept, for a bounded time, and never for longer than there is room: the
// oldest makes place for the next.
//
//   LinkGuests guests(rank, secret, nonce, links);
//   guests.Add(std::move(fd), "10.0.0.7:4711", absl::Now());      // hears what is there already
//   num_admitted += guests.Hear(index, absl::Now());
#ifndef TANDEM_COMMON_COMM_LINK_GUESTS_H_
#define TANDEM_COMMON_COMM_LINK_GUESTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/security/secret.h"
#include "common/status/file_descriptor.h"

namespace tandem::comm {

// A stranger that says nothing is kept for so long, and so many of them.
inline constexpr absl::Duration kGreetingTime = absl::Seconds(5);
inline constexpr size_t kMaxGuests = 256;

// Who connects, and how it proves that it read the store and knows the group's secret.
struct Greeting {
  int32_t rank = -1;
  std::array<char, security::kSecretBytes> proof = {};
};
static_assert(sizeof(Greeting) == sizeof(int32_t) + security::kSecretBytes);

// What rank `from` shows rank `to`, which has put `nonce` in the store: of no use to whoever sees
// it pass by, for a rank is let in once.
std::string LinkProof(const std::string& secret, const std::string& nonce, int from, int to);

// One thread. What it is given by reference outlives it.
class LinkGuests {
 public:
  // `links`, by rank, take those that are let in: ranks above `rank`, each once.
  LinkGuests(int rank, const std::string& secret, const std::string& nonce,
             std::vector<FileDescriptor>& links)
      : rank_(rank), secret_(secret), nonce_(nonce), links_(links) {}

  // Takes a connection that does not block, and hears it. `name`: its address, for errors. Returns
  // whether it was let in at once.
  bool Add(FileDescriptor fd, std::string name, absl::Time now);
  // Hears guest `index`, which has something to say; returns whether it was let in. It may be gone
  // then, but the others keep their places until Sweep().
  bool Hear(size_t index);
  // Forgets who is gone and refuses who has not said enough in time.
  void Sweep(absl::Time now);

  size_t size() const { return guests_.size(); }
  int fd(size_t index) const { return guests_[index].fd.get(); }
  // Makes room for a descriptor: refuses the oldest. False where there is none. After Sweep().
  bool RefuseOldest();

  // Tells of the strangers that were refused, for an error's message.
  std::string Refused() const;

 private:
  struct Guest {
    FileDescriptor fd;
    std::string name;
    Greeting greeting;
    size_t heard = 0;  // bytes of it
    absl::Time until;
  };

  bool Hear(Guest& guest);
  void Refuse(Guest& guest);

  const int rank_;
  const std::string& secret_;
  const std::string& nonce_;
  std::vector<FileDescriptor>& links_;
  std::deque<Guest> guests_;  // the oldest first
  int num_refused_ = 0;
  std::string last_refused_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_GUESTS_H_
