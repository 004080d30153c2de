#include "services/rollout/sessions/session_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/host_port.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

constexpr size_t kLeastIdBytes = 16;
constexpr size_t kMostIdBytes = 128;
constexpr int64_t kDefaultSeconds = 3600;
constexpr int64_t kMostSeconds = 24 * 3600;

// The parameters as those of a request, so that the engine's checks apply.
absl::Status CheckSampling(const v1::OpenSessionRequest& request, const RequestLimits& limits) {
  const v1::SamplingParams& sampling = request.sampling();
  v1::SamplingParams other = sampling;
  for (auto clear : {&v1::SamplingParams::clear_temperature, &v1::SamplingParams::clear_top_k,
                     &v1::SamplingParams::clear_top_p, &v1::SamplingParams::clear_min_p,
                     &v1::SamplingParams::clear_seed, &v1::SamplingParams::clear_max_tokens,
                     &v1::SamplingParams::clear_stop, &v1::SamplingParams::clear_stop_token_ids}) {
    (other.*clear)();
  }
  if (other.ByteSizeLong() > 0) {
    return rpc::InvalidField(
        "sampling",
        "expected temperature, top_k, top_p, min_p, seed, max_tokens, stop and "
        "stop_token_ids only, found " +
            other.ShortDebugString());
  }
  GenerationRequest generation;
  generation.prompt_ids = {0};
  if (sampling.has_max_tokens()) generation.max_tokens = sampling.max_tokens();
  SetSampling(sampling, generation);
  if (request.return_routed_experts() && !limits.routed_layout.ok()) {
    return rpc::InvalidField("return_routed_experts", limits.routed_layout.status().message());
  }
  return CheckRequest(generation, limits);
}

absl::Status CheckId(const std::string& id) {
  if (id.size() >= kLeastIdBytes && id.size() <= kMostIdBytes &&
      std::all_of(id.begin(), id.end(), absl::ascii_isgraph)) {
    return absl::OkStatus();
  }
  return rpc::InvalidField(
      "session_id",
      absl::StrCat("expected ", kLeastIdBytes, " to ", kMostIdBytes,
                   " letters, digits and marks without spaces, found ", id.size(), " bytes"));
}

absl::Status Check(const v1::OpenSessionRequest& request, const RequestLimits& limits) {
  RETURN_IF_ERROR(rpc::CheckEnums(request));
  RETURN_IF_ERROR(CheckId(request.session_id()));
  RETURN_IF_ERROR(rpc::CheckIncarnation("incarnation", request.incarnation()));
  RETURN_IF_ERROR(CheckSampling(request, limits));
  for (const auto& [field, value] : {std::pair("max_tokens", request.max_tokens()),
                                     std::pair("max_length", request.max_length())}) {
    if (value < 0) return rpc::InvalidField(field, absl::StrCat("expected >= 0, found ", value));
  }
  const int64_t seconds = request.duration().seconds();
  if (seconds >= 0 && seconds <= kMostSeconds && request.duration().nanos() >= 0) {
    return absl::OkStatus();
  }
  return rpc::InvalidField(
      "duration", absl::StrCat("expected 0 to ", kMostSeconds, " seconds, found ", seconds));
}

absl::Duration DurationOf(const v1::OpenSessionRequest& request) {
  const absl::Duration given =
      absl::Seconds(request.duration().seconds()) + absl::Nanoseconds(request.duration().nanos());
  return given > absl::ZeroDuration() ? given : absl::Seconds(kDefaultSeconds);
}

// The address by which callers reach the endpoint.
std::string Reachable(const std::string& endpoint, absl::string_view authority) {
  absl::StatusOr<net::HostPort> address = net::ParseListenAddress(endpoint);
  if (!address.ok() || !net::IsAnyAddress(*address)) return endpoint;
  const absl::StatusOr<net::HostPort> called = net::ParseHostPort(authority);
  address->host = called.ok() ? called->host : "127.0.0.1";
  return address->ToString();
}

}  // namespace

void SessionStore::SetEndpoint(std::string endpoint) {
  absl::MutexLock lock(&mu_);
  endpoint_ = std::move(endpoint);
}

absl::StatusOr<std::string> SessionStore::Open(const v1::OpenSessionRequest& request,
                                               const RequestLimits& limits,
                                               absl::string_view authority) {
  RETURN_IF_ERROR(Check(request, limits));
  absl::MutexLock lock(&mu_);
  ForgetExpired();
  if (endpoint_.empty()) {
    return rpc::WithReason(
        absl::FailedPreconditionError("the rollout has no OpenAI endpoint for the session's calls; "
                                      "start it with --openai-listen"),
        "NO_OPENAI_ENDPOINT");
  }
  const std::string url = absl::StrCat("http://", Reachable(endpoint_, authority), "/v1");
  if (const auto found = sessions_.find(request.session_id()); found != sessions_.end()) {
    if (found->second->request().SerializeAsString() == request.SerializeAsString()) return url;
    return absl::AlreadyExistsError("a session of this id is open with other parameters");
  }
  if (sessions_.size() >= options_.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat(sessions_.size(), " sessions are open, as many as there may be"));
  }
  const int64_t routed_bytes =
      request.return_routed_experts() ? limits.routed_layout->bytes_per_token() : 0;
  sessions_[request.session_id()] = std::make_shared<Session>(
      request, absl::Now() + DurationOf(request), bytes_, options_.max_bytes, routed_bytes);
  return url;
}

std::shared_ptr<Session> SessionStore::Find(absl::string_view id) {
  absl::MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  if (!found->second->expired(absl::Now())) return found->second;
  ForgetExpired();
  return nullptr;
}

absl::StatusOr<v1::CloseSessionResponse> SessionStore::Close(const std::string& id) {
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&mu_);
    ForgetExpired();
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
      return absl::NotFoundError("no session of this id is open: it was closed, or has expired");
    }
    session = std::move(found->second);
    sessions_.erase(found);
  }
  return session->Close();
}

void SessionStore::ForgetExpired() {
  const absl::Time now = absl::Now();
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (it->second->expired(now)) {
      sessions_.erase(it++);
    } else {
      ++it;
    }
  }
}

}  // namespace tandem::rollout
