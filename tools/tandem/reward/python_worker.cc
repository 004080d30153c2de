#include "tools/tandem/reward/python_worker.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/json_text.h"
#include "common/io/parse_json.h"
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

absl::StatusOr<OptionalRewards> ParseRewards(const json& answer) {
  const auto rewards = answer.find("rewards");
  if (rewards == answer.end() || !rewards->is_array()) {
    return absl::DataLossError("expected a message with rewards");
  }
  OptionalRewards out;
  for (const json& reward : *rewards) {
    if (!reward.is_null() && !reward.is_number()) {
      return absl::DataLossError("expected rewards that are numbers");
    }
    out.push_back(reward.is_null() ? std::nullopt : std::optional(reward.get<double>()));
  }
  return out;
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
  const auto name = hello.find("function");
  const auto style = hello.find("style");
  if (name == hello.end() || !name->is_string() || style == hello.end()) {
    return absl::DataLossError(absl::StrCat(path_, ": the worker named no function"));
  }
  name_ = *name;
  scores_groups_ = *style == "group";
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
  // The function shares the worker's process, so a message may be the function's.
  json message = io::ParseJson<json>(*text).value_or(nullptr);
  if (!message.is_object()) {
    return absl::DataLossError(absl::StrCat(path_, ": expected a message in JSON"));
  }
  if (const auto error = message.find("error"); error != message.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, name_.empty() ? "" : ": ",
                     error->is_string() ? error->get<std::string>() : io::JsonText(*error)));
  }
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
