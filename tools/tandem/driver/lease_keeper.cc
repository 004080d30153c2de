#include "tools/tandem/driver/lease_keeper.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::driver {
namespace {

using trainer::v1::AcquireLeaseRequest;
using trainer::v1::AcquireLeaseResponse;
using trainer::v1::LeaseHolder;

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
// Without the release the lease expires by itself, so it gets little time.
constexpr absl::Duration kReleaseTimeout = absl::Seconds(2);
// Pause between attempts while the lease of a predecessor expires.
constexpr absl::Duration kWaitPause = absl::Milliseconds(500);
constexpr absl::Duration kWaitSlack = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Seconds(10);  // between heartbeats

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown host";
}

std::string InSeconds(const google::protobuf::Duration& duration) {
  return absl::FormatDuration(absl::Ceil(rpc::FromProto(duration), absl::Seconds(1)));
}

}  // namespace

bool IsLeaseLost(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() && info->reason() == "LEASE_LOST";
}

absl::StatusOr<std::unique_ptr<LeaseKeeper>> LeaseKeeper::Acquire(
    trainer::v1::TrainerService::Stub& stub, LeaseOptions options) {
  AcquireLeaseRequest request;
  request.set_driver_id(rpc::NewUuid());
  request.set_run_id(options.run_id);
  request.set_host(HostName());
  request.set_pid(getpid());
  request.set_run_dir(options.run_dir);
  request.set_take_over(options.take_over);
  if (options.duration.has_value()) {
    *request.mutable_duration() = rpc::ToProto(*options.duration);
  }
  absl::Time give_up = absl::InfinitePast();  // until a predecessor is seen
  while (true) {
    auto context = rpc::MakeContext(kCallTimeout);
    AcquireLeaseResponse response;
    const absl::Status status =
        rpc::FromGrpcStatus(stub.AcquireLease(context.get(), request, &response));
    if (status.ok()) {
      return std::unique_ptr<LeaseKeeper>(
          new LeaseKeeper(stub, std::move(options), std::move(response)));
    }
    const auto holder = rpc::GetDetail<LeaseHolder>(status);
    if (!options.waits_for_own_run || !holder.has_value() || holder->run_id() != options.run_id) {
      return status;
    }
    const absl::Time now = absl::Now();
    if (give_up == absl::InfinitePast()) {
      // Twice the remaining time: a predecessor that is ending may still send a heartbeat.
      give_up = now + 2 * rpc::FromProto(holder->expires_in()) + kWaitSlack;
      if (options.note) {
        options.note(absl::StrCat("an earlier process of this run, ", holder->pid(), " on ",
                                  holder->host(),
                                  ", still holds the trainer; without a heartbeat "
                                  "its lease expires in ",
                                  InSeconds(holder->expires_in()), "; waiting"));
      }
    }
    if (now >= give_up) {
      RETURN_IF_ERROR(status)
          << "an earlier process of this run still sends heartbeats; stop it first";
    }
    if (options.interrupted && options.interrupted()) return absl::CancelledError("interrupted");
    absl::SleepFor(kWaitPause);
  }
}

LeaseKeeper::LeaseKeeper(trainer::v1::TrainerService::Stub& stub, LeaseOptions options,
                         AcquireLeaseResponse granted)
    : stub_(stub), options_(std::move(options)), granted_(std::move(granted)) {
  thread_ = std::thread([this] { HeartbeatLoop(); });
}

LeaseKeeper::~LeaseKeeper() {
  StopHeartbeats();
  auto context = rpc::MakeContext(kReleaseTimeout);
  trainer::v1::ReleaseLeaseRequest request;
  *request.mutable_lease() = lease();
  trainer::v1::ReleaseLeaseResponse response;
  stub_.ReleaseLease(context.get(), request, &response).error_code();
}

void LeaseKeeper::StopHeartbeats() {
  {
    absl::MutexLock lock(&mu_);
    is_ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::End(const std::function<void()>& while_held) {
  StopHeartbeats();
  // The lease may have been lost since the last heartbeat.
  if (Renew(kReleaseTimeout).ok()) while_held();
}

absl::Status LeaseKeeper::Renew(absl::Duration timeout) {
  auto context = rpc::MakeContext(timeout);
  trainer::v1::RenewLeaseRequest request;
  *request.mutable_lease() = lease();
  trainer::v1::RenewLeaseResponse response;
  return rpc::FromGrpcStatus(stub_.RenewLease(context.get(), request, &response));
}

absl::Status LeaseKeeper::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

void LeaseKeeper::HeartbeatLoop() {
  const absl::Duration duration = rpc::FromProto(granted_.duration());
  // The lease survives one lost heartbeat and one late one.
  const absl::Duration pause = std::min(kLongestPause, duration / 4);
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&is_ending_), pause);
      if (is_ending_) return;
    }
    const absl::Status status = Renew(std::min(kCallTimeout, duration));
    if (IsLeaseLost(status)) {
      telemetry::LogError("this process lost the trainer's lease", {{"error", status.message()}});
      absl::MutexLock lock(&mu_);
      status_ = status;
      return;
    }
    // Other errors are ignored: if the trainer does not respond, the run's own calls fail.
    if (options_.on_heartbeat) options_.on_heartbeat();
  }
}

}  // namespace tandem::driver
