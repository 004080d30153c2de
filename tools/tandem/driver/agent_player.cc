#include "tools/tandem/driver/agent_player.h"

#include <utility>

#include "absl/time/clock.h"
#include "common/rpc/new_uuid.h"
#include "common/telemetry/log.h"
#include "tools/tandem/driver/agent_session.h"

namespace tandem::driver {
namespace {

// By which a session outlasts its program.
constexpr absl::Duration kSessionMargin = absl::Minutes(2);

// Whether opening a session again, or on another rollout, may succeed.
bool MayOpenLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) || absl::IsAborted(status);
}

}  // namespace

AgentPlayer::AgentPlayer(Options options)
    : options_(std::move(options)), pool_(options_.max_concurrent, [](const absl::Status& error) {
        telemetry::LogError("an agent's episode failed", {{"error", error.message()}});
      }) {}

std::function<void()> AgentPlayer::Start(Request request, std::function<void(Played)> done) {
  auto is_cancelled = std::make_shared<std::atomic<bool>>(false);
  pool_.Add([this, request = std::move(request), done = std::move(done), is_cancelled]() mutable {
    done(Play(std::move(request), [this, &is_cancelled] { return is_stopping_ || *is_cancelled; }));
  });
  return [is_cancelled] { *is_cancelled = true; };
}

void AgentPlayer::Stop() {
  is_stopping_ = true;
  pool_.Stop();
}

AgentPlayer::Played AgentPlayer::Play(Request request,
                                      const std::function<bool()>& cancelled) const {
  Played out;
  if (cancelled()) {
    out.run.status = absl::CancelledError("the episode is no longer needed");
    return out;
  }
  request.session.set_session_id(rpc::NewUuid());
  const absl::Duration duration = options_.timeout + kSessionMargin;
  request.session.mutable_duration()->set_seconds(absl::ToInt64Seconds(duration));
  auto session = request.fleet->OpenSession(request.session, request.cost, cancelled);
  if (!session.ok()) {
    out.run.status = session.status();
    out.is_refused = !MayOpenLater(session.status());
    return out;
  }
  request.task.base_url = (*session)->url();
  request.task.session_id = request.session.session_id();
  out.replica = (*session)->replica();
  out.incarnation = (*session)->incarnation();
  const absl::Time start = absl::Now();
  out.run = options_.program->Run(request.task, start + options_.timeout, cancelled);
  out.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  absl::StatusOr<rollout::v1::CloseSessionResponse> closed = (*session)->Close();
  if (closed.ok()) {
    out.calls = {closed->calls().begin(), closed->calls().end()};
    for (common::v1::Image& image : *closed->mutable_images()) {
      out.images.push_back(std::move(*image.mutable_data()));
    }
  } else if (out.run.status.ok()) {
    out.run.status = closed.status();
  }
  return out;
}

}  // namespace tandem::driver
