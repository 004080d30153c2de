#include "tools/tandem/environment/service_process.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::environment {
namespace {

constexpr absl::Duration kLookForStop = absl::Milliseconds(100);
constexpr absl::Duration kStopGrace = absl::Seconds(5);
// A program that ran for so long did not fail to start.
constexpr absl::Duration kLongRun = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> ServiceProcess::StartOnce() const {
  return rpc::ChildProcess::Start(
      {.name = "environment.command",
       .argv = {"/bin/sh", "-c", options_.command},
       .environment = {{"TANDEM_ENVIRONMENT_ENDPOINT", options_.endpoint}},
       .log_path = options_.log_path});
}

absl::StatusOr<std::unique_ptr<ServiceProcess>> ServiceProcess::Start(Options options) {
  std::unique_ptr<ServiceProcess> service(new ServiceProcess(std::move(options)));
  ASSIGN_OR_RETURN(service->process_, service->StartOnce());
  service->thread_ = std::thread([raw = service.get()] { raw->KeepRunning(); });
  return service;
}

ServiceProcess::~ServiceProcess() {
  {
    absl::MutexLock lock(&mu_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  if (process_ != nullptr) process_->Stop(kStopGrace);
}

void ServiceProcess::KeepRunning() {
  absl::Duration pause = options_.first_pause;
  absl::Time started = absl::Now();
  while (true) {
    const bool runs = process_ != nullptr && !process_->Wait(kLookForStop);
    if (!runs) {
      const absl::Status end =
          process_ == nullptr
              ? absl::UnavailableError("environment.command cannot be started")
              : absl::UnavailableError(absl::StrCat(
                    "environment.command ", process_->ExitDescription(),
                    options_.log_path.empty() ? "" : "; its log is ", options_.log_path));
      process_.reset();
      pause = absl::Now() - started > kLongRun ? options_.first_pause
                                               : std::min(pause * 2, options_.longest_pause);
      absl::MutexLock lock(&mu_);
      last_end_ = end;
      if (!is_stopping_) {
        telemetry::LogWarning("the environment's process restarts",
                              {{"cause", end.message()}, {"pause", absl::FormatDuration(pause)}});
      }
      mu_.AwaitWithTimeout(absl::Condition(&is_stopping_), pause);
    }
    {
      absl::MutexLock lock(&mu_);
      if (is_stopping_) return;
      if (runs) continue;
      ++num_starts_;
    }
    started = absl::Now();
    absl::StatusOr<std::unique_ptr<rpc::ChildProcess>> process = StartOnce();
    if (process.ok()) process_ = *std::move(process);
  }
}

absl::Status ServiceProcess::last_end() const {
  absl::MutexLock lock(&mu_);
  return last_end_;
}

int64_t ServiceProcess::num_starts() const {
  absl::MutexLock lock(&mu_);
  return num_starts_;
}

}  // namespace tandem::environment
