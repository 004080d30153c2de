#include "common/comm/link_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/refusals.h"

namespace tandem::comm {
namespace {

constexpr size_t kSecretBytes = security::kSecretBytes;
constexpr absl::Duration kCancelLook = absl::Milliseconds(20);  // between looks at `cancelled`
// A stranger that says nothing is kept for so long.
constexpr absl::Duration kGreetingTime = absl::Seconds(5);
constexpr size_t kMostGuests = 64;

// Who connects, and how it proves that it read the store and knows the group's secret.
struct Greeting {
  int32_t rank = -1;
  std::array<char, kSecretBytes> proof = {};
};
static_assert(sizeof(Greeting) == sizeof(int32_t) + kSecretBytes);

std::string RankKey(int rank) { return absl::StrCat("links/", rank); }

// What rank `from` shows rank `to`, which has put `nonce` in the store: of no use to whoever sees
// it pass by, for a rank is let in once.
std::string Proof(const std::string& secret, const std::string& nonce, int from, int to) {
  return security::Hmac(secret, {"link", nonce, absl::StrCat(from), absl::StrCat(to)});
}

absl::StatusOr<FileDescriptor> ConnectToRank(LinkFamily& family, int rank, int peer,
                                             StoreConnection& store, absl::Time deadline,
                                             const Cancelled& cancelled) {
  RETURN_IF_ERROR(store.WaitFor(RankKey(peer), deadline, cancelled));
  ASSIGN_OR_RETURN(const std::string entry, store.Read(RankKey(peer), deadline, cancelled));
  const std::string what = absl::StrCat("connection to rank ", peer);
  const std::vector<std::string> parts = absl::StrSplit(entry, ' ');
  const std::string nonce = parts.size() == 2 ? absl::HexStringToBytes(parts[1]) : "";
  if (nonce.size() != kSecretBytes) {
    return absl::UnavailableError(absl::StrCat(what, ": the store has no address of it"));
  }
  Greeting greeting;
  greeting.rank = rank;
  const std::string proof = Proof(store.secret(), nonce, rank, peer);
  std::copy(proof.begin(), proof.end(), greeting.proof.begin());
  absl::StatusOr<FileDescriptor> fd =
      family.Connect(absl::HexStringToBytes(parts[0]), deadline, cancelled);
  RETURN_IF_ERROR(fd.status()) << what;
  // A few bytes always fit in a socket that was never written to.
  if (send(fd->get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) != sizeof(greeting)) {
    return SocketError(what);
  }
  return fd;
}

// Connections that were accepted and have not said yet who they are.
class Guests {
 public:
  Guests(LinkFamily& family, int rank, const std::string& secret, const std::string& nonce,
         std::vector<FileDescriptor>& links)
      : family_(family), rank_(rank), secret_(secret), nonce_(nonce), links_(links) {}

  // Accepts who knocks and hears who speaks; answers the number of ranks that were let in.
  int Attend(const FileDescriptor& listener) {
    std::vector<pollfd> entries = {{listener.get(), POLLIN, 0}};
    for (const Guest& guest : guests_) entries.push_back({guest.fd.get(), POLLIN, 0});
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(kCancelLook)));
    int admitted = 0;
    std::vector<Guest> waiting;
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (entries[i + 1].revents != 0 && Hear(guests_[i])) ++admitted;
      if (!guests_[i].fd.is_open()) continue;
      if (absl::Now() > guests_[i].until) {
        Refuse(guests_[i]);
      } else {
        waiting.push_back(std::move(guests_[i]));
      }
    }
    guests_ = std::move(waiting);
    if ((entries[0].revents & POLLIN) != 0 && guests_.size() < kMostGuests) {
      sockaddr_storage peer{};
      socklen_t length = sizeof(peer);
      FileDescriptor fd(accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &length,
                                SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.is_open() && family_.Admit(fd)) {
        guests_.push_back(
            {std::move(fd), family_.NameOf(peer, length), {}, 0, absl::Now() + kGreetingTime});
      }
    }
    return admitted;
  }

  // Of the strangers that were refused, for an error's message.
  std::string Refused() const {
    if (num_refused_ == 0) return "";
    return absl::StrCat("; refused ", num_refused_, " connections of strangers, the last from ",
                        last_refused_);
  }

 private:
  struct Guest {
    FileDescriptor fd;
    std::string name;  // kept from when it came: one that is gone has none
    Greeting greeting;
    size_t heard = 0;  // bytes of it
    absl::Time until;
  };

  // Whether the guest has turned out to be a rank that is waited for.
  bool Hear(Guest& guest) {
    const ssize_t n = recv(guest.fd.get(), reinterpret_cast<char*>(&guest.greeting) + guest.heard,
                           sizeof(Greeting) - guest.heard, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n > 0) guest.heard += static_cast<size_t>(n);
    if (n > 0 && guest.heard < sizeof(Greeting)) return false;
    const Greeting& greeting = guest.greeting;
    const absl::string_view proof(greeting.proof.data(), greeting.proof.size());
    if (guest.heard < sizeof(Greeting) ||
        !security::AreEqual(proof, Proof(secret_, nonce_, greeting.rank, rank_)) ||
        greeting.rank <= rank_ || greeting.rank >= static_cast<int>(links_.size()) ||
        links_[greeting.rank].is_open()) {
      Refuse(guest);
      return false;
    }
    links_[greeting.rank] = std::move(guest.fd);
    return true;
  }

  void Refuse(Guest& guest) {
    ++num_refused_;
    last_refused_ = guest.name;
    telemetry::CountRefusal(telemetry::RefusedAt::kLinks, last_refused_,
                            "it is no rank of the group, or is there already");
    guest.fd = FileDescriptor();
  }

  LinkFamily& family_;
  const int rank_;
  const std::string& secret_;
  const std::string& nonce_;
  std::vector<FileDescriptor>& links_;
  std::vector<Guest> guests_;
  int num_refused_ = 0;
  std::string last_refused_;
};

}  // namespace

absl::Status SocketError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status AwaitSocket(const FileDescriptor& fd, short events, absl::Time deadline,
                         const Cancelled& cancelled, absl::string_view what) {
  while (true) {
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError(absl::StrCat(what, ": cancelled"));
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(what, ": deadline exceeded"));
    }
    pollfd entry = {fd.get(), events, 0};
    const int ready = poll(
        &entry, 1, static_cast<int>(absl::ToInt64Milliseconds(std::min(kCancelLook, left)) + 1));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return SocketError(what);
  }
}

absl::StatusOr<std::vector<FileDescriptor>> ConnectMesh(LinkFamily& family, int rank, int size,
                                                        StoreConnection& store, absl::Time deadline,
                                                        const Cancelled& cancelled) {
  std::vector<FileDescriptor> links(size);
  ASSIGN_OR_RETURN(const LinkFamily::Listener listener, family.Listen(size));
  const std::string nonce = security::DrawSecret();
  RETURN_IF_ERROR(store.Set(
      RankKey(rank),
      absl::StrCat(absl::BytesToHexString(listener.address), " ", absl::BytesToHexString(nonce)),
      deadline));
  for (int peer = 0; peer < rank; ++peer) {
    ASSIGN_OR_RETURN(links[peer], ConnectToRank(family, rank, peer, store, deadline, cancelled));
  }
  Guests guests(family, rank, store.secret(), nonce, links);
  for (int missing = size - 1 - rank; missing > 0;) {
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError("connection of a higher rank: cancelled");
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "connections of ", missing, " higher ranks: deadline exceeded", guests.Refused()));
    }
    missing -= guests.Attend(listener.fd);
  }
  return links;
}

}  // namespace tandem::comm
