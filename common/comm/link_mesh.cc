#include "common/comm/link_mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/comm/acceptor.h"
#include "common/comm/link_guests.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr size_t kSecretBytes = security::kSecretBytes;
constexpr absl::Duration kCancelLook = absl::Milliseconds(20);  // between looks at `cancelled`

std::string RankKey(int rank) { return absl::StrCat("links/", rank); }

absl::StatusOr<host::FileDescriptor> ConnectToRank(LinkFamily& family, int rank, int peer,
                                                   StoreConnection& store, absl::Time deadline,
                                                   const Cancelled& cancelled) {
  RETURN_IF_ERROR(store.WaitFor(RankKey(peer), deadline, cancelled));
  ASSIGN_OR_RETURN(const std::string entry, store.Read(RankKey(peer), deadline, cancelled));
  const std::string what = absl::StrCat("connection to rank ", peer);
  const std::vector<std::string> parts = absl::StrSplit(entry, ' ');
  const std::string nonce = parts.size() == 2 ? absl::HexStringToBytes(parts[1]) : "";
  if (nonce.size() != kSecretBytes) {
    return absl::UnavailableError(absl::StrCat(what, ": the store has no address for it"));
  }
  Greeting greeting;
  greeting.rank = rank;
  const std::string proof = LinkProof(store.secret(), nonce, rank, peer);
  std::copy(proof.begin(), proof.end(), greeting.proof.begin());
  absl::StatusOr<host::FileDescriptor> fd =
      family.Connect(absl::HexStringToBytes(parts[0]), deadline, cancelled);
  RETURN_IF_ERROR(fd.status()) << what;
  // A few bytes always fit in a socket that was never written to.
  if (send(fd->get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) != sizeof(greeting)) {
    return SocketError(what);
  }
  return fd;
}

// Accepts connections and admits those that prove to be a rank.
class Door {
 public:
  Door(LinkFamily& family, const host::FileDescriptor& listener, LinkGuests& guests)
      : family_(family), listener_(listener), guests_(guests) {}

  // Waits a little; returns the number of ranks that were let in.
  int Attend() {
    const bool accepts = !acceptor_.is_paused(absl::Now());
    std::vector<pollfd> entries = {{accepts ? listener_.get() : -1, POLLIN, 0}};
    for (size_t i = 0; i < guests_.size(); ++i) entries.push_back({guests_.fd(i), POLLIN, 0});
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(kCancelLook)));
    int admitted = 0;
    // Before the sweep and before new guests, because entries and guests share their indices.
    for (size_t i = 0; i + 1 < entries.size(); ++i) {
      if (entries[i + 1].revents != 0 && guests_.Hear(i)) ++admitted;
    }
    guests_.Sweep(absl::Now());
    if ((entries[0].revents & POLLIN) == 0) return admitted;
    acceptor_.Accept(
        listener_,
        [&](host::FileDescriptor fd, const sockaddr_storage& peer, socklen_t length) {
          if (!family_.Admit(fd)) return;
          if (guests_.Add(std::move(fd), family_.NameOf(peer, length), absl::Now())) ++admitted;
        },
        [&] { return guests_.RefuseOldest(); });
    return admitted;
  }

 private:
  LinkFamily& family_;
  const host::FileDescriptor& listener_;
  LinkGuests& guests_;
  Acceptor acceptor_;
};

}  // namespace

absl::Status SocketError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status AwaitSocket(const host::FileDescriptor& fd, short events, absl::Time deadline,
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

absl::StatusOr<std::vector<host::FileDescriptor>> ConnectMesh(LinkFamily& family, int rank,
                                                              int size, StoreConnection& store,
                                                              absl::Time deadline,
                                                              const Cancelled& cancelled) {
  std::vector<host::FileDescriptor> links(size);
  ASSIGN_OR_RETURN(const LinkFamily::Listener listener,
                   family.Listen(std::max(size, kListenBacklog)));
  const std::string nonce = security::DrawSecret();
  RETURN_IF_ERROR(store.Set(
      RankKey(rank),
      absl::StrCat(absl::BytesToHexString(listener.address), " ", absl::BytesToHexString(nonce)),
      deadline));
  // Connecting needs no accept: the connection completes in the peer's backlog, which holds all
  // ranks. So a rank that still connects itself holds up nobody.
  for (int peer = 0; peer < rank; ++peer) {
    ASSIGN_OR_RETURN(links[peer], ConnectToRank(family, rank, peer, store, deadline, cancelled));
  }
  LinkGuests guests(rank, store.secret(), nonce, links);
  Door door(family, listener.fd, guests);
  for (int missing = size - 1 - rank; missing > 0;) {
    if (cancelled != nullptr && cancelled()) {
      return absl::CancelledError("waiting for connections of higher ranks: cancelled");
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "connections of ", missing, " higher ranks: deadline exceeded", guests.Refused()));
    }
    missing -= door.Attend();
  }
  return links;
}

}  // namespace tandem::comm
