// The client's side of a call: a channel with the settings that our servers expect, a context that
// always has a deadline, and the health question.
//
//   auto channel = rpc::MakeChannel("127.0.0.1:5000");
//   RETURN_IF_ERROR(rpc::WaitUntilHealthy(channel, "tandem.rollout.v1.RolloutService", timeout));
//   auto context = rpc::MakeContext(absl::Seconds(30));
//   absl::Status status = rpc::FromGrpcStatus(stub->GetServerInfo(context.get(), request, &info));
//
// Thread-safe; a channel is shared freely.
#ifndef TANDEM_COMMON_RPC_CHANNEL_H_
#define TANDEM_COMMON_RPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/transport_security.h"

namespace tandem::rpc {

// Largest message that either side sends or receives.
inline constexpr int64_t kDefaultMaxMessageBytes = 16 << 20;

// Both sides of a connection ping it when it is quiet, so that a peer that vanished without closing
// it is noticed. A server refuses peers that ping more often than kMinPingInterval.
inline constexpr absl::Duration kPingInterval = absl::Seconds(30);
inline constexpr absl::Duration kPingTimeout = absl::Seconds(30);
inline constexpr absl::Duration kMinPingInterval = absl::Seconds(10);

// Metadata of every answer: the server's clock, milliseconds since the epoch.
inline constexpr char kServerTime[] = "tandem-time-ms";

struct ChannelOptions {
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  // Repeats calls that failed with UNAVAILABLE before an answer began. Every call of our services
  // may be repeated (they carry a request_id); turn it off where a failure is to be seen at once.
  bool retry = true;
  // Plaintext, and no token, where the process has TLS: for health ports.
  bool plaintext = false;
  // How to prove who we are; null for that of the process.
  std::shared_ptr<const TransportSecurity> security;
};

// Returns at once; the connection is made by the first call. HTTP proxies of the environment are
// not used: services talk to each other directly. Where the address must not be spoken to as the
// process is set up (TransportSecurity::CheckTarget) every call fails with the reason.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ChannelOptions& options = {});

struct ContextOptions {
  // Waits, up to the deadline, for a server that is not reachable yet, instead of failing.
  bool wait_for_ready = false;
};

// A context for one call, which fails with DEADLINE_EXCEEDED after `timeout`.
std::unique_ptr<grpc::ClientContext> MakeContext(absl::Duration timeout,
                                                 const ContextOptions& options = {});

// Asks grpc.health.v1 once: whether `service_name` ("" for the process) is SERVING. UNAVAILABLE
// where nobody answers, NOT_FOUND where the server does not know the name.
absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& service_name, absl::Duration timeout);

// How far the server's clock is ahead of ours, and how long the question took: the first is known
// to half of the second. UNAVAILABLE where nobody answers; UNIMPLEMENTED where the server is not
// one of ours.
struct ClockDifference {
  absl::Duration ahead;
  absl::Duration round_trip;
};
absl::StatusOr<ClockDifference> CompareClocks(const std::shared_ptr<grpc::Channel>& channel,
                                              absl::Duration timeout);

// Asks until the answer is SERVING. DEADLINE_EXCEEDED, with the last answer, after `timeout`.
absl::Status WaitUntilHealthy(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& service_name, absl::Duration timeout);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CHANNEL_H_
