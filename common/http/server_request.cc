// Reads, admits and serves one request, and sends its response.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/http/server_impl.h"
#include "common/status/exceptions.h"

namespace tandem::http {
namespace {

using boost::asio::ip::tcp;

constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

Error Failure() { return {500, "INTERNAL", "internal error; see the server's log"}; }

}  // namespace

void Server::Impl::AwaitInput(const Pointer& connection) {
  connection->socket.async_wait(tcp::socket::wait_read,
                                [this, connection](const boost::system::error_code& error) {
                                  if (connection->closed || error) return;
                                  Guard(connection, [&] {
                                    if (connection->phase == Phase::kReading) {
                                      OnInput(connection);
                                    } else if (connection->phase == Phase::kLingering) {
                                      Discard(connection);
                                    }
                                  });
                                });
}

void Server::Impl::OnInput(const Pointer& connection) {
  const ssize_t got =
      recv(connection->socket.native_handle(), scratch_.data(), scratch_.size(), MSG_DONTWAIT);
  if (got > 0) return Process(connection, {scratch_.data(), static_cast<size_t>(got)});
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return AwaitInput(connection);
  }
  Close(connection);  // the client has gone, or ended its half before the request was complete
}

void Server::Impl::Process(const Pointer& connection, std::string_view bytes) {
  RequestReader& reader = connection->reader;
  if (reader.Feed(bytes) == RequestReader::State::kHeadDone) {
    if (!AdmitHead(connection)) return;
    reader.Feed("");
  }
  CountBytes(connection, static_cast<int64_t>(reader.size_bytes()));
  if (connection->closed) return;
  switch (reader.state()) {
    case RequestReader::State::kFailed:
      return Refuse(connection, reader.error());
    case RequestReader::State::kDone:
      return Dispatch(connection);
    default:
      return AwaitInput(connection);
  }
}

std::optional<Error> Server::Impl::CheckLane(const Connection& connection) const {
  const Lane& lane = connection.slow ? limits_.slow : limits_.quick;
  const int places = lane.num_threads + lane.max_queued;
  const bool full = table_.CountServing(connection.slow) >= places;
  if (!connection.slow) {
    if (!full) return std::nullopt;
    return Error{503, "SERVER_BUSY", "too many requests at once; try again later"};
  }
  if (!full && table_.CountSlow(connection.client) < PerAddress(places)) return std::nullopt;
  return Error{429, "TOO_MANY_REQUESTS",
               absl::StrCat("expected at most ", full ? places : PerAddress(places),
                            full ? " requests at once" : " requests at once from one address",
                            "; try again later")};
}

bool Server::Impl::AdmitHead(const Pointer& connection) {
  const Request& head = connection->reader.request();
  connection->head_only = head.method == "HEAD";
  const auto refuse = [&](const Error& error) {
    Refuse(connection, error);
    return false;
  };
  Admission admission;
  try {
    admission = handler_.Admit(head);
  } catch (const std::exception& error) {
    telemetry::LogError("exception in an HTTP request", {{"error", StatusOf(error).message()}});
    return refuse(Failure());
  }
  std::optional<Error> foreign = policy_.CheckOrigin(head);
  if (!foreign.has_value() && !admission.authenticated) foreign = policy_.CheckHost(head);
  if (foreign.has_value()) return refuse(*foreign);
  if (admission.refusal.has_value()) {
    Respond(connection, *std::move(admission.refusal));
    return false;
  }
  connection->slow = admission.slow;
  if (const std::optional<Error> full = CheckLane(*connection); full.has_value()) {
    return refuse(*full);
  }
  if (!connection->reader.ExpectBody(admission.max_body_bytes)) {
    return refuse(connection->reader.error());
  }
  if (const std::string* expect = head.Header("Expect"); expect != nullptr && !head.http_1_0) {
    if (!absl::EqualsIgnoreCase(*expect, "100-continue")) {
      return refuse({417, "EXPECTATION_FAILED", "expected Expect: 100-continue"});
    }
    // A full buffer takes no more than it must: the client sends its body after a while anyway.
    send(connection->socket.native_handle(), kContinue, sizeof(kContinue) - 1,
         MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  SetDeadline(connection, limits_.request_timeout - (absl::Now() - connection->accepted));
  return true;
}

void Server::Impl::Dispatch(const Pointer& connection) {
  if (const std::optional<Error> full = CheckLane(*connection); full.has_value()) {
    return Refuse(connection, *full);
  }
  SetPhase(connection, Phase::kServing);
  connection->timer.cancel();
  // What the body holds is counted until its handler lets it go.
  const int64_t held_bytes = std::exchange(connection->counted_bytes, 0);
  const auto exchange =
      std::make_shared<Exchange>(std::move(connection->reader.request()),
                                 connection->socket.native_handle(), limits_.write_timeout);
  exchange->set_on_body_released([this, held_bytes] { buffered_bytes_ -= held_bytes; });
  const auto task = [this, connection, exchange] {
    ServeOnWorker(*exchange);
    boost::asio::post(io_, [this, connection, exchange] {
      Guard(connection, [&] { Finish(connection, *exchange); });
    });
  };
  if ((connection->slow ? slow_ : quick_).Submit(task)) return;
  exchange->ReleaseBody();
  Refuse(connection, {503, "SERVER_BUSY", "no thread available for the request; try again later"});
}

void Server::Impl::ServeOnWorker(Exchange& exchange) const {
  try {
    handler_.Serve(exchange);
  } catch (const std::exception& error) {
    telemetry::LogError("exception in an HTTP request", {{"method", exchange.request().method},
                                                         {"path", exchange.request().path},
                                                         {"error", StatusOf(error).message()}});
    exchange.reply().reset();
  } catch (...) {
    telemetry::LogError("exception in an HTTP request",
                        {{"method", exchange.request().method}, {"path", exchange.request().path}});
    exchange.reply().reset();
  }
  exchange.ReleaseBody();
}

void Server::Impl::Finish(const Pointer& connection, Exchange& exchange) {
  if (connection->closed) return;
  if (!exchange.streams()) {
    if (!exchange.reply().has_value()) return Refuse(connection, Failure());
    return Respond(connection, *std::move(exchange.reply()));
  }
  if (!exchange.stream_complete()) {
    // A reset, so that the client does not take what it has for the whole.
    connection->socket.set_option(tcp::socket::linger(true, 0));
    return Close(connection);
  }
  Linger(connection);
}

void Server::Impl::Refuse(const Pointer& connection, const Error& error) {
  Respond(connection, handler_.Refuse(error));
}

void Server::Impl::Respond(const Pointer& connection, Response response) {
  if (connection->closed) return;
  connection->reader.Drop();
  SetPhase(connection, Phase::kWriting);
  const auto size = static_cast<int64_t>(response.body.size());
  connection->out = SerializeHead(response, {{"Content-Length", absl::StrCat(size)}});
  if (!connection->head_only) connection->out += response.body;
  connection->answered = absl::Now();
  CountBytes(connection, static_cast<int64_t>(connection->out.size()));
  if (!connection->closed) WriteSome(connection);
}

void Server::Impl::WriteSome(const Pointer& connection) {
  const int fd = connection->socket.native_handle();
  while (connection->num_sent < connection->out.size()) {
    const ssize_t sent =
        send(fd, connection->out.data() + connection->num_sent,
             connection->out.size() - connection->num_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      connection->num_sent += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const absl::Duration allowance =
          WriteAllowance(limits_.write_timeout, static_cast<int64_t>(connection->num_sent));
      SetDeadline(connection, allowance - (absl::Now() - connection->answered));
      connection->socket.async_wait(tcp::socket::wait_write,
                                    [this, connection](const boost::system::error_code& error) {
                                      if (connection->closed || error) return;
                                      Guard(connection, [&] { WriteSome(connection); });
                                    });
      return;
    } else if (errno != EINTR) {
      return Close(connection);
    }
  }
  Linger(connection);
}

void Server::Impl::Linger(const Pointer& connection) {
  const RequestReader& reader = connection->reader;
  std::string().swap(connection->out);
  CountBytes(connection, 0);
  if (reader.state() == RequestReader::State::kDone && !reader.has_excess()) {
    return Close(connection);
  }
  // Closing over unread bytes would send a reset, which may overtake the answer.
  shutdown(connection->socket.native_handle(), SHUT_WR);
  SetPhase(connection, Phase::kLingering);
  SetDeadline(connection, limits_.linger_timeout);
  AwaitInput(connection);
}

void Server::Impl::Discard(const Pointer& connection) {
  const ssize_t got =
      recv(connection->socket.native_handle(), scratch_.data(), scratch_.size(), MSG_DONTWAIT);
  const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  connection->discarded_bytes += std::max<ssize_t>(got, 0);
  const bool more = later || (got > 0 && connection->discarded_bytes < limits_.max_linger_bytes);
  if (more) return AwaitInput(connection);
  Close(connection);
}

}  // namespace tandem::http
