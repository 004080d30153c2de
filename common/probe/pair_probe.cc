#include "common/probe/pair_probe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/comm/local_address.h"
#include "common/comm/time_left.h"
#include "common/host/run_on_threads.h"
#include "common/net/socket_address.h"
#include "common/probe/connect_socket.h"
#include "common/probe/pair_echo.h"
#include "common/status/status_macros.h"

namespace tandem::probe {
namespace {

using diagnostics::v1::PairProbe;
using diagnostics::v1::RankProbe;

constexpr int kMessageBytes = 64;
constexpr int kMessages = 16;
constexpr size_t kAtOnce = 16;
// Limit per pair, so that a host that drops packets does not block until the deadline.
constexpr absl::Duration kPairTime = absl::Seconds(3);

std::string AddressKey(int rank) { return absl::StrCat("probe/address/", rank); }
std::string DoneKey(int rank) { return absl::StrCat("probe/done/", rank); }

// The endpoint of a rank's echo.
struct Place {
  std::string host;
  std::string port;
  std::string nonce;
};

// Moves all of it, or returns errno.
int Move(const host::FileDescriptor& fd, bool out, char* bytes, size_t size, absl::Time deadline) {
  for (size_t moved = 0; moved < size;) {
    const ssize_t n = out ? send(fd.get(), bytes + moved, size - moved, MSG_NOSIGNAL)
                          : recv(fd.get(), bytes + moved, size - moved, 0);
    if (n > 0) {
      moved += n;
      continue;
    }
    if (n == 0) return ECONNRESET;
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    pollfd ready{fd.get(), static_cast<short>(out ? POLLOUT : POLLIN), 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) == 0) return ETIMEDOUT;
  }
  return 0;
}

// Times round trips of messages. Returns errno.
int Exchange(const Place& place, EchoGreeting greeting, absl::Time deadline, PairProbe& out) {
  int port = 0;
  if (!absl::SimpleAtoi(place.port, &port) || !net::IsNumber({place.host, port})) return EINVAL;
  const auto addresses = net::Resolve({place.host, port});
  if (!addresses.ok()) return EINVAL;
  const absl::Time start = absl::Now();
  host::FileDescriptor fd;
  if (const int error = ConnectSocket(addresses->front(), deadline - start, fd); error != 0)
    return error;
  out.set_connect_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int error = Move(fd, /*out=*/true, greeting.proof.data(), greeting.proof.size(), deadline);
  std::vector<double> seconds;
  // The first one waits until the greeting is checked.
  for (int i = 0; i <= kMessages && error == 0; ++i) {
    std::array<char, kMessageBytes> message{};
    message.fill(static_cast<char>('a' + i));
    std::array<char, kMessageBytes> back{};
    const absl::Time sent = absl::Now();
    error = Move(fd, /*out=*/true, message.data(), message.size(), deadline);
    if (error == 0) error = Move(fd, /*out=*/false, back.data(), back.size(), deadline);
    if (error == 0 && back != message) error = EBADMSG;
    if (i > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - sent));
  }
  if (error != 0) return error;
  std::sort(seconds.begin(), seconds.end());
  out.set_round_trip_seconds(seconds[seconds.size() / 2]);
  return 0;
}

absl::StatusOr<Place> PlaceOf(comm::StoreClient& store, int rank, absl::Time deadline,
                              const absl::Notification* cancel) {
  ASSIGN_OR_RETURN(const std::string entry,
                   store.Get(AddressKey(rank), comm::TimeLeft(deadline), cancel));
  const std::vector<std::string> parts = absl::StrSplit(entry, ' ');
  if (parts.size() != 3) {
    return absl::UnavailableError(
        parts.size() > 3 ? entry : absl::StrCat("rank ", rank, " published no address"));
  }
  return Place{parts[0], parts[1], absl::HexStringToBytes(parts[2])};
}

// Whether `rank` exchanged messages with every other rank, once it is done.
absl::StatusOr<bool> CouldAll(comm::StoreClient& store, int rank, const PairProbeOptions& options) {
  const absl::StatusOr<std::string> done =
      store.Get(DoneKey(rank), comm::TimeLeft(options.deadline), options.cancel);
  if (!done.ok()) return done.status();
  return absl::string_view(*done) == "1";
}

}  // namespace

absl::StatusOr<bool> ProbePairs(const PairProbeOptions& options, RankProbe& out) {
  const absl::Time start = absl::Now();
  // Three parts: all have arrived, all have exchanged messages, all know the result.
  const absl::Duration part = (options.deadline - start) / 3;
  ASSIGN_OR_RETURN(auto store,
                   comm::StoreClient::Connect(options.rendezvous, part, options.cancel));
  ASSIGN_OR_RETURN(const std::string host, comm::LocalAddressTowards(options.rendezvous.host));
  out.set_address(host);
  ASSIGN_OR_RETURN(const auto echo,
                   PairEcho::Start(host, options.rendezvous.secret, options.rank, options.size));
  RETURN_IF_ERROR(store->Set(
      AddressKey(options.rank),
      absl::StrCat(host, " ", echo->port(), " ", absl::BytesToHexString(echo->nonce()))));
  std::vector<absl::StatusOr<Place>> places;
  for (int peer = 0; peer < options.size; ++peer) {
    places.push_back(peer == options.rank ? absl::StatusOr<Place>(Place{})
                                          : PlaceOf(*store, peer, start + part, options.cancel));
  }
  std::vector<PairProbe> pairs(options.size);
  std::atomic<int> next{0};
  std::atomic<bool> all_could{true};
  host::RunOnThreads(std::min<size_t>(kAtOnce, options.size), [&] {
    for (int peer = next++; peer < options.size; peer = next++) {
      if (peer == options.rank) continue;
      PairProbe& pair = pairs[peer];
      pair.set_peer(peer);
      if (!places[peer].ok()) {
        pair.set_error(
            absl::StrCat("it did not join the rendezvous: ", places[peer].status().message()));
        all_could = false;
        continue;
      }
      pair.set_address(absl::StrCat(places[peer]->host, ":", places[peer]->port));
      const int error = Exchange(
          *places[peer],
          MakeEchoGreeting(options.rendezvous.secret, places[peer]->nonce, options.rank, peer),
          std::min(absl::Now() + kPairTime, start + 2 * part), pair);
      if (error == 0) continue;
      pair.set_error(std::strerror(error));
      all_could = false;
    }
  });
  for (int peer = 0; peer < options.size; ++peer) {
    if (peer != options.rank) *out.add_pairs() = std::move(pairs[peer]);
  }
  RETURN_IF_ERROR(store->Set(DoneKey(options.rank), all_could ? "1" : "0"));
  // Keep the echo until all have used it.
  bool group_could = true;
  for (int peer = 0; peer < options.size; ++peer) {
    if (!places[peer].ok()) {  // it is not waited for again
      group_could = false;
      continue;
    }
    ASSIGN_OR_RETURN(const bool could, CouldAll(*store, peer, options));
    group_could = group_could && could;
  }
  return group_could;
}

}  // namespace tandem::probe
