#include "common/comm/gloo_state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/run_with_deadline.h"

namespace tandem::comm {
namespace {

using std::chrono::milliseconds;

// Above kMaxPeerTag, so that no message ever matches them.
constexpr int kBreakTag = 0x7fffffff;
constexpr int kWatchTag = 0x7ffffffe;
constexpr uint32_t kMaxPeerTag = 0x3fffffff;
constexpr absl::Duration kPeerLook = absl::Milliseconds(100);  // between checks of the peers
// A peer that has left may have finished its part of operations that others still run.
constexpr absl::Duration kGoneGrace = absl::Seconds(1);
// Operations that a closed connection ends, end at once.
constexpr absl::Duration kEndGrace = absl::Milliseconds(100);

}  // namespace

GlooState::GlooState(const GroupOptions& options, GlooBackend backend)
    : name(options.name),
      rank(options.rank),
      size(options.size),
      timeout_(options.timeout),
      backend_(std::move(backend)),
      sent_(options.size, 0),
      received_(options.size, 0) {
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    Peer& watched = peers_.emplace_back();
    watched.rank = peer;
    std::vector<at::Tensor> nothing = {at::zeros({1}, at::kByte)};
    try {
      watched.work = backend_->recv(nothing, peer, kWatchTag);
    } catch (const std::exception& error) {
      watched.gone = absl::Now();
      watched.why = FirstLine(error.what());
    }
  }
  watch_ = std::thread([this] { Watch(); });
}

GlooState::~GlooState() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  watch_.join();
  const auto finished = [this]() ABSL_SHARED_LOCKS_REQUIRED(shared_->mu) {
    return shared_->unfinished == 0;
  };
  absl::MutexLock lock(&shared_->mu);
  if (shared_->mu.AwaitWithTimeout(absl::Condition(&finished), kEndGrace)) return;
  // The backend's destructor waits for an operation that Gloo keeps until it times out.
  std::thread([backend = std::move(backend_)]() mutable { backend.reset(); }).detach();
}

absl::StatusOr<std::shared_ptr<GlooState::Issued>> GlooState::Issue(Operation op, Kind kind,
                                                                    const IssueCall& call) {
  auto issued = std::make_shared<Issued>();
  issued->is_message = kind != Kind::kCollective;
  {
    absl::MutexLock lock(&mu_);
    op.timeout = timeout_;
    op.deadline = absl::Now() + timeout_;
    if (!broken_.ok()) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(op), ": the group is broken; create a new one; cause: ", broken_.message()));
    }
    uint32_t tag = 0;
    if (kind == Kind::kSend) tag = sent_[op.peer]++ & kMaxPeerTag;
    if (kind == Kind::kReceive) tag = received_[op.peer]++ & kMaxPeerTag;
    try {
      issued->work = call(*backend_, static_cast<int>(tag));
    } catch (const std::exception& error) {
      return BreakLocked(
          absl::UnavailableError(absl::StrCat(Describe(op), ": ", FirstLine(error.what()))));
    }
    issued->op = std::move(op);
    under_way_.push_back(issued);
  }
  if (issued->is_message) return issued;
  {
    absl::MutexLock lock(&shared_->mu);
    ++shared_->unfinished;
  }
  issued->work->getFuture()->addCallback([issued, shared = shared_](c10::ivalue::Future&) {
    absl::MutexLock lock(&shared->mu);
    --shared->unfinished;
    issued->is_done = true;
  });
  return issued;
}

absl::Status GlooState::Wait(const Issued& issued) {
  if (!issued.is_message && !AwaitCollective(issued)) {
    return Explain(issued.op, "the operation was abandoned");
  }
  try {
    if (issued.work->wait(ToMilliseconds(issued.op.deadline - absl::Now())))
      return absl::OkStatus();
    // wait() was cancelled, possibly after the work had finished: check once more.
    if (issued.work->wait(milliseconds(1))) return absl::OkStatus();
  } catch (const std::exception& error) {
    return Explain(issued.op, FirstLine(error.what()));
  }
  return Explain(issued.op, "the operation was cancelled");
}

bool GlooState::AwaitCollective(const Issued& issued) const {
  const auto has_ended = [&]() ABSL_SHARED_LOCKS_REQUIRED(shared_->mu) {
    return issued.is_done || shared_->broken;
  };
  absl::MutexLock lock(&shared_->mu);
  shared_->mu.AwaitWithDeadline(absl::Condition(&has_ended), issued.op.deadline);
  return issued.is_done;
}

void GlooState::Forget(const std::shared_ptr<Issued>& issued) {
  absl::MutexLock lock(&mu_);
  under_way_.erase(std::find(under_way_.begin(), under_way_.end(), issued));
}

bool GlooState::IsUnderWay() const {
  absl::MutexLock lock(&mu_);
  return !under_way_.empty();
}

absl::Status GlooState::Explain(const Operation& op, const std::string& what) {
  absl::MutexLock lock(&mu_);
  const std::string described = Describe(op);
  if (!broken_.ok()) {
    if (absl::StrContains(broken_.message(), described)) return broken_;
    return absl::Status(
        broken_.code(),
        absl::StrCat(described, ": ended because the group broke: ", broken_.message()));
  }
  if (absl::Now() >= op.deadline) {
    return BreakLocked(absl::DeadlineExceededError(
        absl::StrCat(described, ": not finished after ", absl::FormatDuration(op.timeout))));
  }
  const auto peer = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& watched) {
    return watched.rank == op.peer && !watched.why.empty();
  });
  return BreakLocked(absl::UnavailableError(
      absl::StrCat(described, ": a peer is gone: ", peer == peers_.end() ? what : peer->why)));
}

absl::Status GlooState::Break(absl::Status reason) {
  absl::MutexLock lock(&mu_);
  return BreakLocked(std::move(reason));
}

absl::Status GlooState::BreakLocked(absl::Status reason) {
  if (!broken_.ok()) return broken_;
  broken_ = std::move(reason);
  for (const Peer& peer : peers_) {
    try {
      std::vector<at::Tensor> nothing = {at::zeros({1}, at::kByte)};
      backend_->recv(nothing, peer.rank, kBreakTag)->wait(milliseconds(1));
    } catch (const std::exception&) {
      // Expected: the time-out has closed all connections, or this one was closed already.
    }
    CallOff(peer.rank);
  }
  absl::MutexLock lock(&shared_->mu);
  shared_->broken = true;
  return broken_;
}

void GlooState::SetTimeout(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  timeout_ = timeout;
  backend_->setTimeout(ToMilliseconds(timeout + kGlooSlack));
}

absl::Status GlooState::status() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

void GlooState::CallOff(int peer) {
  for (const auto& issued : under_way_) {
    // Once only: Wait() asks again whether the message was done before it was called off, and a
    // second abort() would end that wait too.
    if (issued->op.peer != peer || !issued->is_message || issued->called_off) continue;
    issued->called_off = true;
    issued->work->abort();
  }
}

void GlooState::Watch() {
  absl::MutexLock lock(&mu_);
  while (!mu_.AwaitWithTimeout(absl::Condition(&stopping_), kPeerLook)) {
    if (!broken_.ok() || under_way_.empty()) continue;
    for (Peer& peer : peers_) {
      if (peer.why.empty()) LookAt(peer);
      if (!peer.why.empty()) EndWhatNeeds(peer);
    }
  }
}

void GlooState::LookAt(Peer& peer) {
  try {
    peer.work->abort();  // so that the wait only looks
    peer.work->wait();
  } catch (const std::exception& error) {
    peer.gone = absl::Now();
    peer.why = FirstLine(error.what());
  }
}

void GlooState::EndWhatNeeds(const Peer& peer) {
  CallOff(peer.rank);
  const auto is_under_way = [&](const Issued& issued) {
    absl::MutexLock lock(&shared_->mu);
    return !issued.is_message && !issued.is_done;
  };
  for (const auto& issued : under_way_) {
    const absl::Time issue_time = issued->op.deadline - issued->op.timeout;
    if (absl::Now() - std::max(peer.gone, issue_time) < kGoneGrace) continue;
    if (!is_under_way(*issued)) continue;
    BreakLocked(absl::UnavailableError(absl::StrCat(Describe(issued->op), ": a peer is gone: rank ",
                                                    peer.rank, ": ", peer.why)))
        .IgnoreError();
    return;
  }
}

}  // namespace tandem::comm
