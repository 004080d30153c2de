#include "tools/tandem/reward/python_worker.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/status/status_macros.h"
#include "reward_worker_program.h"

namespace tandem::reward {
namespace {

using nlohmann::json;

// Reads the worker's program, the first message, from descriptor 0 and runs it: so that a list of
// processes shows the user's file and no program text.
constexpr char kReadProgram[] =
    "import os;f=os.fdopen(os.dup(0),'rb');"
    "exec(compile(f.read(int.from_bytes(f.read(4),'little')),'reward_worker.py','exec'))";
// A process that has closed its socket ends soon.
constexpr absl::Duration kExit = absl::Seconds(5);

absl::Status Placed(const std::string& place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PythonWorker>> PythonWorker::Start(const PythonFunction& function,
                                                                  absl::Duration timeout) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(function.path, ": cannot make a socket: ", strerror(errno)));
  }
  host::FileDescriptor own(ends[0]);
  host::FileDescriptor of_worker(ends[1]);
  auto process = rpc::ChildProcess::Start(
      {.name = absl::StrCat("reward ", function.path),
       // Unbuffered, so that the log has every line that precedes a crash.
       .argv = {function.python, "-u", "-c", kReadProgram, function.path, function.name},
       .log_path = function.log_path,
       .stdin_fd = of_worker.get()});
  of_worker = host::FileDescriptor();
  if (!process.ok()) {
    return StatusBuilder(process.status()) << "reward.python names the interpreter";
  }
  std::unique_ptr<PythonWorker> worker(
      new PythonWorker(*std::move(process), std::move(own), function.path, function.log_path));
  RETURN_IF_ERROR(worker->Load(timeout));
  return worker;
}

absl::Status PythonWorker::Load(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const std::string_view program = RewardWorkerPy();
  const absl::Status sent = socket_.Send({program.data(), program.size()}, deadline);
  if (!sent.ok()) return Explain(sent, timeout);
  ASSIGN_OR_RETURN(const json hello, Receive(deadline, timeout));
  absl::StatusOr<WorkerHello> parsed = ParseHello(hello);
  if (!parsed.ok()) return Placed(path_, parsed.status());
  name_ = std::move(parsed->function);
  scores_groups_ = parsed->scores_groups;
  return absl::OkStatus();
}

absl::StatusOr<OptionalRewards> PythonWorker::Call(const json& request, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const absl::Status sent = socket_.Send(io::JsonText(request), deadline);
  if (absl::IsInvalidArgument(sent)) return sent;
  if (!sent.ok()) return Explain(sent, timeout);
  ASSIGN_OR_RETURN(const json answer, Receive(deadline, timeout));
  return ParseRewards(answer);
}

absl::StatusOr<json> PythonWorker::Receive(absl::Time deadline, absl::Duration timeout) {
  const absl::StatusOr<std::string> text = socket_.Receive(deadline);
  if (!text.ok()) return Explain(text.status(), timeout);
  absl::StatusOr<json> message = ParseWorkerMessage(*text);
  if (absl::IsDataLoss(message.status())) return Placed(path_, message.status());
  if (!message.ok() && !name_.empty()) return Placed(name_, message.status());
  return message;
}

absl::Status PythonWorker::Explain(const absl::Status& status, absl::Duration timeout) {
  const std::string what = absl::StrCat(path_, ": ", name_.empty() ? "loading" : name_);
  if (absl::IsDeadlineExceeded(status)) {
    process_->Kill();
    return absl::DeadlineExceededError(
        absl::StrCat(what, " took longer than ", absl::FormatDuration(timeout),
                     ", and its process was killed; reward.timeout_s is the limit"));
  }
  if (!absl::IsUnavailable(status)) return StatusBuilder(status) << what;
  process_->Wait(kExit);
  return absl::UnavailableError(
      absl::StrCat(what, " ended its process (", process_->ExitDescription(), ")",
                   log_path_.empty() ? "" : absl::StrCat("; its output is in ", log_path_)));
}

}  // namespace tandem::reward
