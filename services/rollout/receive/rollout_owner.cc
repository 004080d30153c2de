#include "services/rollout/receive/rollout_owner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/policy_version.h"
#include "common/rpc/proto_duration.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::rollout {
namespace {

using common::v1::WeightOwner;

constexpr size_t kMaxTextLength = 8192;
constexpr absl::Duration kMaxHold = absl::Hours(24);

std::string NameOf(const WeightOwner& owner) {
  if (owner.run_id().empty()) {
    return absl::StrCat("the trainer of incarnation ", owner.incarnation(), ", without a run");
  }
  return absl::StrCat("run ", owner.run_id(), " (", owner.driver(), "; trainer incarnation ",
                      owner.incarnation(), ")");
}

}  // namespace

RolloutOwner::RolloutOwner(rpc::MonotonicClock clock) : clock_(std::move(clock)) {}

bool RolloutOwner::IsOtherRun(const WeightOwner& claim) const {
  return owner_.has_value() && claim.incarnation() != owner_->incarnation() &&
         (claim.run_id().empty() || claim.run_id() != owner_->run_id());
}

std::string RolloutOwner::DescribeLocked() const {
  if (!owner_.has_value()) return "";
  return absl::StrCat("; the rollout belongs to ", NameOf(*owner_), ", last heartbeat ",
                      absl::FormatDuration(absl::Trunc(clock_() - heard_at_, absl::Seconds(1))),
                      " ago");
}

absl::Status RolloutOwner::Check(const WeightOwner& claim) {
  RETURN_IF_ERROR(rpc::CheckIncarnation("owner.incarnation", claim.incarnation()));
  if (claim.run_id().size() > kMaxTextLength || claim.driver().size() > kMaxTextLength) {
    return rpc::InvalidField("owner",
                             absl::StrCat("expected texts of at most ", kMaxTextLength, " bytes"));
  }
  if (const absl::Duration hold = rpc::FromProto(claim.hold());
      hold < absl::ZeroDuration() || hold > kMaxHold) {
    return rpc::InvalidField(
        "owner.hold", absl::StrCat("expected 0 to ", absl::FormatDuration(kMaxHold), ", found ",
                                   absl::FormatDuration(hold)));
  }
  absl::MutexLock lock(&mu_);
  if (!owner_.has_value() || claim.incarnation() == owner_->incarnation()) return absl::OkStatus();
  if (claim.incarnation() < owner_->incarnation()) {
    ++num_refused_;
    return rpc::WithReason(absl::FailedPreconditionError(absl::StrCat(
                               "incarnation ", claim.incarnation(), " is over", DescribeLocked())),
                           "STALE_INCARNATION",
                           {{"expected", absl::StrCat(owner_->incarnation())},
                            {"actual", absl::StrCat(claim.incarnation())}});
  }
  const absl::Duration hold = rpc::FromProto(owner_->hold());
  if (!IsOtherRun(claim) || claim.take_over() || clock_() - heard_at_ >= hold) {
    return absl::OkStatus();
  }
  ++num_refused_;
  const std::string found = NameOf(claim);
  telemetry::LogWarning("refused another run's trainer",
                        {{"trainer", found}, {"owner", NameOf(*owner_)}});
  return rpc::WithReason(
      absl::FailedPreconditionError(absl::StrCat(found, " wants this rollout", DescribeLocked(),
                                                 "; stop that run, give this one other rollouts, "
                                                 "wait until its owner has been silent for ",
                                                 absl::FormatDuration(hold),
                                                 ", or take over on purpose with --take-over")),
      "FOREIGN_TRAINER",
      {{"run_id", owner_->run_id()},
       {"driver", owner_->driver()},
       {"incarnation", absl::StrCat(owner_->incarnation())}});
}

void RolloutOwner::Accept(const WeightOwner& claim) {
  absl::MutexLock lock(&mu_);
  if (IsOtherRun(claim) && has_ended_) {
    telemetry::LogInfo("another run's trainer has this rollout",
                       {{"trainer", NameOf(claim)}, {"after", NameOf(*owner_)}});
  } else if (IsOtherRun(claim)) {
    ++num_take_overs_;
    telemetry::LogWarning("another run's trainer takes over this rollout",
                          {{"trainer", NameOf(claim)},
                           {"from", NameOf(*owner_)},
                           {"told_to", claim.take_over() ? "yes" : "no"}});
  }
  owner_ = claim;
  owner_->clear_take_over();
  has_ended_ = false;
  heard_at_ = clock_();
}

void RolloutOwner::Hear(int64_t incarnation) {
  absl::MutexLock lock(&mu_);
  if (owner_.has_value() && incarnation != 0 && owner_->incarnation() == incarnation) {
    heard_at_ = clock_();
  }
}

void RolloutOwner::Release(int64_t incarnation, const std::string& run_id) {
  absl::MutexLock lock(&mu_);
  if (owner_.has_value() && owner_->incarnation() == incarnation && owner_->run_id() == run_id) {
    owner_->clear_hold();
    has_ended_ = true;
  }
}

std::optional<WeightOwner> RolloutOwner::owner() const {
  absl::MutexLock lock(&mu_);
  return owner_;
}

std::string RolloutOwner::Describe() const {
  absl::MutexLock lock(&mu_);
  return DescribeLocked();
}

int64_t RolloutOwner::num_take_overs() const {
  absl::MutexLock lock(&mu_);
  return num_take_overs_;
}

int64_t RolloutOwner::num_refused() const {
  absl::MutexLock lock(&mu_);
  return num_refused_;
}

}  // namespace tandem::rollout
