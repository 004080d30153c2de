#include "services/trainer/service/driver_lease.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::trainer {
namespace {

constexpr size_t kMaxIdLength = 128;
constexpr size_t kMaxTextLength = 4096;  // of texts in messages

absl::Status CheckText(absl::string_view field, const std::string& text, size_t least,
                       size_t most) {
  if (text.size() >= least && text.size() <= most) return absl::OkStatus();
  return rpc::InvalidField(
      field, absl::StrFormat("expected %d to %d bytes, found %d", least, most, text.size()));
}

// Cut to whole seconds, for messages.
std::string InSeconds(const google::protobuf::Duration& duration) {
  return absl::FormatDuration(absl::Trunc(rpc::FromProto(duration), absl::Seconds(1)));
}

}  // namespace

std::string ToString(const v1::LeaseHolder& holder) {
  return absl::StrFormat(
      "run %s of process %d on %s, run folder %s (held for %s, last heartbeat %s ago)",
      holder.run_id(), holder.pid(), holder.host(), holder.run_dir(), InSeconds(holder.held_for()),
      InSeconds(holder.silent_for()));
}

DriverLease::DriverLease(Options options)
    : options_(std::move(options)), next_epoch_(std::max<int64_t>(1, options_.first_epoch)) {}

bool DriverLease::IsLive() const {
  return held_.has_value() && options_.clock() - held_->heard_at <= held_->duration;
}

v1::LeaseHolder DriverLease::Describe() const {
  const absl::Duration now = options_.clock();
  v1::LeaseHolder out;
  out.set_run_id(held_->by.run_id());
  out.set_host(held_->by.host());
  out.set_pid(held_->by.pid());
  out.set_run_dir(held_->by.run_dir());
  out.set_epoch(held_->epoch);
  *out.mutable_held_for() = rpc::ToProto(now - held_->since);
  *out.mutable_silent_for() = rpc::ToProto(now - held_->heard_at);
  *out.mutable_expires_in() =
      rpc::ToProto(std::max(absl::ZeroDuration(), held_->heard_at + held_->duration - now));
  return out;
}

absl::Status DriverLease::HeldError() const {
  const v1::LeaseHolder holder = Describe();
  absl::Status status = rpc::WithReason(absl::FailedPreconditionError(absl::StrCat(
                                            "another driver holds this trainer: ", ToString(holder),
                                            "; stop it, or wait: without a "
                                            "heartbeat its lease expires in ",
                                            InSeconds(holder.expires_in()))),
                                        "LEASE_HELD",
                                        {{"run_id", holder.run_id()},
                                         {"host", holder.host()},
                                         {"pid", absl::StrCat(holder.pid())},
                                         {"run_dir", holder.run_dir()},
                                         {"epoch", absl::StrCat(holder.epoch())}});
  rpc::AttachDetail(status, holder);
  return status;
}

absl::Status DriverLease::LostError(const v1::Lease& lease) const {
  std::string why = "it was released, or belongs to an earlier incarnation of the trainer";
  if (held_.has_value() && held_->epoch == lease.epoch()) {
    why = absl::StrCat("this driver was silent for ", InSeconds(Describe().silent_for()),
                       ", and the lease expires after ", absl::FormatDuration(held_->duration),
                       " (trainer.driver_lease_s)");
  } else if (held_.has_value()) {
    why = absl::StrCat("it is now held under epoch ", held_->epoch, " by ", ToString(Describe()));
  }
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "this driver's lease on the trainer, epoch ", lease.epoch(), ", has ended: ", why,
          "; its calls are refused. To continue the run, start it again with --resume")),
      "LEASE_LOST",
      {{"epoch", absl::StrCat(lease.epoch())},
       {"current_epoch", held_.has_value() ? absl::StrCat(held_->epoch) : ""}});
}

absl::StatusOr<v1::AcquireLeaseResponse> DriverLease::Acquire(
    const v1::AcquireLeaseRequest& request) {
  RETURN_IF_ERROR(CheckText("driver_id", request.driver_id(), 1, kMaxIdLength));
  RETURN_IF_ERROR(CheckText("run_id", request.run_id(), 1, kMaxIdLength));
  RETURN_IF_ERROR(CheckText("host", request.host(), 0, kMaxTextLength));
  RETURN_IF_ERROR(CheckText("run_dir", request.run_dir(), 0, kMaxTextLength));
  const absl::Duration duration =
      request.has_duration() ? rpc::FromProto(request.duration()) : options_.duration;
  if (duration <= absl::ZeroDuration() || duration > kMaxLeaseDuration) {
    return rpc::InvalidField("duration", absl::StrCat("expected more than 0 and at most ",
                                                      absl::FormatDuration(kMaxLeaseDuration),
                                                      ", found ", absl::FormatDuration(duration)));
  }
  absl::MutexLock lock(&mu_);
  const bool live = IsLive();
  const bool is_repeat = live && held_->by.driver_id() == request.driver_id() &&
                         held_->by.run_id() == request.run_id();
  if (live && !is_repeat && !request.take_over()) {
    ++num_refused_;
    return HeldError();
  }
  if (is_repeat) {
    held_->heard_at = options_.clock();
  } else {
    if (held_.has_value()) {
      ++num_take_overs_;
      telemetry::LogWarning(live ? "a driver takes over the trainer from a live one"
                                 : "a driver takes over the trainer; the last lease has expired",
                            {{"run", request.run_id()},
                             {"host", request.host()},
                             {"pid", request.pid()},
                             {"from", ToString(Describe())}});
    } else {
      telemetry::LogInfo("a driver acquired the lease", {{"run", request.run_id()},
                                                         {"host", request.host()},
                                                         {"pid", request.pid()},
                                                         {"run_dir", request.run_dir()}});
    }
    const absl::Duration now = options_.clock();
    held_ = Held{request, next_epoch_++, duration, now, now};
  }
  v1::AcquireLeaseResponse response;
  response.mutable_lease()->set_run_id(request.run_id());
  response.mutable_lease()->set_epoch(held_->epoch);
  *response.mutable_duration() = rpc::ToProto(held_->duration);
  return response;
}

absl::Status DriverLease::CheckHeld(const v1::Lease& lease) {
  if (!IsLive() || held_->epoch != lease.epoch() || held_->by.run_id() != lease.run_id()) {
    ++num_refused_;
    return LostError(lease);
  }
  held_->heard_at = options_.clock();
  return absl::OkStatus();
}

absl::Status DriverLease::Renew(const v1::Lease& lease) {
  absl::MutexLock lock(&mu_);
  return CheckHeld(lease);
}

void DriverLease::Release(const v1::Lease& lease) {
  absl::MutexLock lock(&mu_);
  if (!held_.has_value() || held_->epoch != lease.epoch() || held_->by.run_id() != lease.run_id()) {
    return;
  }
  held_.reset();
}

absl::Status DriverLease::CheckWrite(const v1::Lease& lease) {
  absl::MutexLock lock(&mu_);
  if (lease.epoch() != 0 || !lease.run_id().empty()) return CheckHeld(lease);
  if (IsLive()) {
    ++num_refused_;
    return HeldError();
  }
  if (held_.has_value()) {
    telemetry::LogWarning("a call without a lease replaces an expired lease",
                          {{"of", ToString(Describe())}});
    held_.reset();
  }
  return absl::OkStatus();
}

std::optional<v1::LeaseHolder> DriverLease::holder() const {
  absl::MutexLock lock(&mu_);
  if (!IsLive()) return std::nullopt;
  return Describe();
}

absl::Duration DriverLease::duration() const {
  absl::MutexLock lock(&mu_);
  return IsLive() ? held_->duration : absl::ZeroDuration();
}

int64_t DriverLease::num_take_overs() const {
  absl::MutexLock lock(&mu_);
  return num_take_overs_;
}

int64_t DriverLease::num_refused() const {
  absl::MutexLock lock(&mu_);
  return num_refused_;
}

}  // namespace tandem::trainer
