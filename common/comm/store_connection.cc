#include "common/comm/store_connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/store_wire.h"
#include "common/net/socket_address.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kReadLook = absl::Milliseconds(20);  // between looks at `cancelled`
constexpr absl::Duration kGrace = absl::Milliseconds(100);    // for an answer that is on its way
constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kRetryPause = absl::Milliseconds(50);  // between attempts to connect

// OK once `fd` is ready for `events`, CANCELLED once `stop_fd`, if there is one, can be read.
absl::Status PollUntil(int fd, short events, absl::Time deadline, const Cancelled& cancelled,
                       int stop_fd = -1) {
  while (true) {
    if (cancelled && cancelled()) return absl::CancelledError("cancelled");
    const absl::Duration left = deadline - absl::Now();
    pollfd entries[2] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};  // one below zero is passed over
    const absl::Duration wait =
        std::clamp(left, absl::ZeroDuration(), cancelled ? kReadLook : absl::Seconds(10));
    // Rounded up, so that the last millisecond is not spent spinning.
    const int ready = poll(
        entries, 2, static_cast<int>(absl::ToInt64Milliseconds(wait + absl::Microseconds(999))));
    if (ready > 0 && entries[0].revents != 0) return absl::OkStatus();
    if (ready > 0) return absl::CancelledError("cancelled");
    if (ready < 0 && errno != EINTR) return absl::UnavailableError(std::strerror(errno));
    if (ready == 0 && left <= absl::ZeroDuration())
      return absl::DeadlineExceededError("deadline exceeded");
  }
}

absl::StatusOr<int> ConnectTo(const net::SocketAddress& address, absl::Time deadline,
                              const Cancelled& cancelled) {
  const int fd = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  absl::Status status;
  if (connect(fd, address.get(), address.length) != 0) {
    if (errno == EINPROGRESS) {
      status = PollUntil(fd, POLLOUT, deadline, cancelled);
      int error = 0;
      socklen_t length = sizeof(error);
      if (status.ok() && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error != 0) {
        status = absl::UnavailableError(std::strerror(error));
      }
    } else {
      status = absl::UnavailableError(std::strerror(errno));
    }
  }
  if (!status.ok()) {
    close(fd);
    return status;
  }
  // Nagle's algorithm would hold a small query back until the one before is acknowledged.
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

absl::StatusOr<int> ConnectOnce(const Rendezvous& rendezvous, absl::Time deadline,
                                const Cancelled& cancelled) {
  const auto addresses = net::Resolve({rendezvous.host, rendezvous.port});
  if (!addresses.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot resolve: ", addresses.status().message()));
  }
  absl::Status last = absl::UnavailableError("no address");
  for (const net::SocketAddress& address : *addresses) {
    absl::StatusOr<int> fd = ConnectTo(address, deadline, cancelled);
    if (fd.ok() || absl::IsCancelled(fd.status())) return fd;
    last = fd.status();
  }
  return last;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreConnection>> StoreConnection::Open(const Rendezvous& rendezvous,
                                                                       absl::Time deadline,
                                                                       const Cancelled& cancelled) {
  const std::string place = absl::StrCat("store ", rendezvous.host, ":", rendezvous.port);
  const int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(place, ": cannot make an eventfd: ", std::strerror(errno)));
  }
  auto connection = absl::WrapUnique(new StoreConnection(stop_fd, place, rendezvous));
  const absl::Time unreachable = absl::Now() + rendezvous.unreachable_limit;
  while (true) {
    const absl::Status status = connection->Establish(deadline, cancelled);
    if (status.ok()) return connection;
    const bool may_come = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
    if (!may_come) return status;
    if (absl::IsUnavailable(status) && absl::Now() >= unreachable) {
      return absl::UnavailableError(absl::StrCat(status.message(), " for ",
                                                 absl::FormatDuration(rendezvous.unreachable_limit),
                                                 "; it answered before, so the process that serves "
                                                 "it, rank 0 or torchrun, has ended: look "
                                                 "there for the cause"));
    }
    if (absl::Now() + kRetryPause >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("connecting: ", status.message()));
    }
    absl::SleepFor(kRetryPause);
  }
}

// Strangers who crowd the store may cause it to evict this client before its proof: retries.
absl::Status StoreConnection::Establish(absl::Time deadline, const Cancelled& cancelled) {
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kRetryPause)) {
    const absl::StatusOr<int> fd = ConnectOnce(rendezvous_, deadline, cancelled);
    if (!fd.ok()) {
      return Described(absl::IsCancelled(fd.status()) ? absl::CancelledError("connect: cancelled")
                                                      : fd.status());
    }
    fd_ = *fd;
    const absl::Status greeted = Greet(deadline, cancelled);
    if (greeted.ok()) return greeted;
    // The store has proven nothing on this connection, so no query may follow.
    if (fd_ >= 0) close(std::exchange(fd_, -1));
    if (!absl::IsUnavailable(greeted) || absl::Now() + pause >= deadline) return greeted;
    absl::SleepFor(pause);
  }
}

absl::Status StoreConnection::Reopen(absl::Time deadline, const Cancelled& cancelled) {
  if (fd_ < 0) return absl::OkStatus();  // the call that comes says so
  // Looks before it writes: a query without a reply (kSet) would be lost unnoticed on a connection
  // that the store has closed.
  char byte;
  const ssize_t n = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return absl::OkStatus();
  close(std::exchange(fd_, -1));
  const absl::Time until = std::max(deadline, absl::Now() + kGrace);
  const absl::Status status = Establish(until, cancelled);
  if (status.ok() || absl::IsCancelled(status)) return status;
  return Close(absl::UnavailableError(
      absl::StrCat("it closed the connection and cannot be reached again: ", status.message())));
}

absl::Status StoreConnection::Greet(absl::Time deadline, const Cancelled& cancelled) {
  std::string hello;
  AppendInteger(hello, StoreQuery::kValidate);
  AppendInteger(hello, kStoreMagic);
  RETURN_IF_ERROR(WriteBytes(hello, deadline, cancelled));
  if (!secret().empty() && rendezvous_.store_has_secret) {
    RETURN_IF_ERROR(Prove(deadline, cancelled));
  }
  // The server's process has to answer, not just its host.
  std::string ping;
  AppendInteger(ping, StoreQuery::kPing);
  AppendInteger<uint32_t>(ping, 42);
  uint32_t echo = 0;
  RETURN_IF_ERROR(WriteBytes(ping, deadline, cancelled));
  RETURN_IF_ERROR(ReadBytes(&echo, sizeof(echo), deadline, cancelled));
  if (echo == ~uint32_t{0} && secret().empty()) {
    return Close(absl::PermissionDeniedError(
        "it requires the group's secret, but this rank has none; set TANDEM_GROUP_SECRET"));
  }
  if (echo != 42) return Close(absl::FailedPreconditionError("it is not a rendezvous store"));
  return absl::OkStatus();
}

absl::Status StoreConnection::Prove(absl::Time deadline, const Cancelled& cancelled) {
  const std::string own = security::DrawSecret(kStoreProofBytes);
  std::string challenge;
  AppendInteger(challenge, StoreQuery::kChallenge);
  RETURN_IF_ERROR(WriteBytes(challenge + own, deadline, cancelled));
  std::string nonce(kStoreProofBytes, '\0');
  RETURN_IF_ERROR(ReadBytes(nonce.data(), nonce.size(), deadline, cancelled));
  std::string query;
  AppendInteger(query, StoreQuery::kProve);
  RETURN_IF_ERROR(WriteBytes(query + security::Hmac(secret(), {kStoreClient, own, nonce}), deadline,
                             cancelled));
  std::string proof(kStoreProofBytes, '\0');
  RETURN_IF_ERROR(ReadBytes(proof.data(), proof.size(), deadline, cancelled));
  if (proof == kStoreRefusal) {
    return Close(
        absl::PermissionDeniedError("it refused this rank's secret, which belongs to another "
                                    "group, to another update, or to one that has ended"));
  }
  if (!security::AreEqual(proof, security::Hmac(secret(), {kStoreServer, own, nonce}))) {
    return Close(absl::PermissionDeniedError(
        "it does not know the group's secret: it is another group's store"));
  }
  return absl::OkStatus();
}

StoreConnection::~StoreConnection() {
  if (fd_ >= 0) close(fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

absl::Status StoreConnection::Close(absl::Status why) {
  // Half a message may be on the wire: nothing can follow it.
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  return Described(why);
}

absl::Status StoreConnection::Described(const absl::Status& why) const {
  return absl::Status(why.code(), absl::StrCat(place_, ": ", why.message()));
}

absl::Status StoreConnection::Poll(short events, absl::Time deadline, const Cancelled& cancelled) {
  if (fd_ < 0) return absl::UnavailableError("the connection is closed");
  return PollUntil(fd_, events, deadline, cancelled);
}

absl::Status StoreConnection::WriteBytes(const std::string& bytes, absl::Time deadline,
                                         const Cancelled& cancelled) {
  for (size_t done = 0; done < bytes.size();) {
    if (const absl::Status status = Poll(POLLOUT, deadline, cancelled); !status.ok()) {
      // Nothing was sent yet, so the connection stays usable.
      const bool may_go_on = done == 0 && !absl::IsUnavailable(status);
      return may_go_on ? Described(status) : Close(status);
    }
    const ssize_t n = send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0)
      done += static_cast<size_t>(n);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
      return Close(absl::UnavailableError(std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status StoreConnection::ReadBytes(void* data, size_t size, absl::Time deadline,
                                        const Cancelled& cancelled) {
  for (size_t done = 0; done < size;) {
    if (const absl::Status status = Poll(POLLIN, deadline, cancelled); !status.ok())
      return Close(status);
    const ssize_t n = recv(fd_, static_cast<char*>(data) + done, size - done, 0);
    if (n > 0)
      done += static_cast<size_t>(n);
    else if (n == 0)
      return Close(absl::UnavailableError("it closed the connection"));
    else if (errno != EAGAIN && errno != EINTR)
      return Close(absl::UnavailableError(std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status StoreConnection::Set(const std::string& key, const std::string& value,
                                  absl::Time deadline) {
  RETURN_IF_ERROR(Reopen(deadline, nullptr));
  std::string query;
  AppendInteger(query, StoreQuery::kSet);
  AppendString(query, Full(key));
  AppendString(query, value);
  return WriteBytes(query, deadline, nullptr);
}

absl::StatusOr<bool> StoreConnection::Check(const std::string& key, absl::Time deadline,
                                            const Cancelled& cancelled) {
  RETURN_IF_ERROR(Reopen(deadline, cancelled));
  std::string query;
  AppendInteger(query, StoreQuery::kCheck);
  AppendInteger<uint64_t>(query, 1);
  AppendString(query, Full(key));
  RETURN_IF_ERROR(WriteBytes(query, deadline, cancelled));
  uint8_t answer = kNotReady;
  RETURN_IF_ERROR(ReadBytes(&answer, sizeof(answer), deadline, cancelled));
  return answer == kReady;
}

absl::StatusOr<uint8_t> StoreConnection::ReadByte(absl::Time deadline, const Cancelled& cancelled) {
  uint8_t byte = 0;
  RETURN_IF_ERROR(ReadBytes(&byte, sizeof(byte), deadline, cancelled));
  return byte;
}

absl::StatusOr<bool> StoreConnection::CancelWait() {
  const absl::Time until = absl::Now() + kGrace;
  std::string query;
  AppendInteger(query, StoreQuery::kCancelWait);
  // The answer to the wait would be taken for another's.
  if (const absl::Status sent = WriteBytes(query, until, nullptr); !sent.ok()) return Close(sent);
  ASSIGN_OR_RETURN(uint8_t answer, ReadByte(until, nullptr));
  if (answer == kWaitCancelled) return false;
  ASSIGN_OR_RETURN(answer, ReadByte(until, nullptr));
  if (answer == kWaitCancelled) return true;
  return Close(absl::UnavailableError(absl::StrCat("unexpected response ", answer, " to a wait")));
}

absl::Status StoreConnection::WaitFor(const std::string& key, absl::Time deadline,
                                      const Cancelled& cancelled) {
  RETURN_IF_ERROR(Reopen(deadline, cancelled)) << "wait for key " << Full(key);
  while (true) {
    // The store closes a connection that is silent for kStoreIdleTime; asking again keeps it open.
    const absl::Time until = std::min(deadline, absl::Now() + kStoreIdleTime / 2);
    const absl::Status status = WaitOnce(key, until, cancelled);
    if (until == deadline || fd_ < 0 || !absl::IsDeadlineExceeded(status)) return status;
  }
}

absl::Status StoreConnection::WaitOnce(const std::string& key, absl::Time deadline,
                                       const Cancelled& cancelled) {
  const auto explain = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(place_, ": wait for key ", Full(key), ": ", status.message()));
  };
  std::string query;
  AppendInteger(query, StoreQuery::kWait);
  AppendInteger<uint64_t>(query, 1);
  AppendString(query, Full(key));
  if (const absl::Status sent =
          WriteBytes(query, std::max(deadline, absl::Now() + kGrace), cancelled);
      !sent.ok()) {
    return explain(sent);
  }
  absl::Status status = fd_ < 0 ? absl::UnavailableError("the connection is closed")
                                : PollUntil(fd_, POLLIN, deadline, cancelled, stop_fd_);
  if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) {
    eventfd_t unused;
    eventfd_read(stop_fd_, &unused);
    const absl::StatusOr<bool> there = CancelWait();
    if (!there.ok()) return explain(status);
    return *there && absl::IsDeadlineExceeded(status) ? absl::OkStatus() : explain(status);
  }
  if (!status.ok()) return explain(status);
  const absl::StatusOr<uint8_t> answer = ReadByte(absl::Now() + kGrace, nullptr);
  if (!answer.ok()) return explain(answer.status());
  if (*answer == kReady) return absl::OkStatus();
  return explain(
      Close(absl::UnavailableError(absl::StrCat("unexpected response ", *answer, " to a wait"))));
}

void StoreConnection::StopWaiting() { eventfd_write(stop_fd_, 1); }

absl::StatusOr<std::string> StoreConnection::Read(const std::string& key, absl::Time deadline,
                                                  const Cancelled& cancelled) {
  RETURN_IF_ERROR(Reopen(deadline, cancelled));
  std::string query;
  AppendInteger(query, StoreQuery::kGet);
  AppendString(query, Full(key));
  RETURN_IF_ERROR(WriteBytes(query, deadline, cancelled));
  uint64_t size = 0;
  RETURN_IF_ERROR(ReadBytes(&size, sizeof(size), deadline, cancelled));
  if (size > kMaxStoreString)
    return Close(absl::UnavailableError(absl::StrCat("a value of ", size, " bytes")));
  std::string value(size, '\0');
  RETURN_IF_ERROR(ReadBytes(value.data(), value.size(), deadline, cancelled));
  return value;
}

absl::StatusOr<int64_t> StoreConnection::Add(const std::string& key, int64_t delta,
                                             absl::Time deadline) {
  RETURN_IF_ERROR(Reopen(deadline, nullptr));
  std::string query;
  AppendInteger(query, StoreQuery::kAdd);
  AppendString(query, Full(key));
  AppendInteger(query, delta);
  RETURN_IF_ERROR(WriteBytes(query, deadline, nullptr));
  int64_t value = 0;
  RETURN_IF_ERROR(ReadBytes(&value, sizeof(value), deadline, nullptr));
  return value;
}

}  // namespace tandem::comm
