#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/http/client.h"
#include "common/io/json_text.h"
#include "common/net/host_port.h"
#include "common/status/status_macros.h"
#include "tools/tandem/environment/agent_program.h"

namespace tandem::environment {
namespace {

constexpr int kDefaultHttpPort = 80;
constexpr size_t kMaxShownBytes = 512;

class AgentServer : public AgentProgram {
 public:
  AgentServer(net::HostPort address, std::string path)
      : address_(std::move(address)), path_(std::move(path)) {}

  absl::Status Check() const override { return absl::OkStatus(); }  // it may start later

  AgentRun Run(const AgentTask& task, absl::Time deadline,
               const std::function<bool()>& cancelled) const override {
    AgentRun run;
    run.status = Play(task, deadline, cancelled, run);
    return run;
  }

 private:
  absl::Status Play(const AgentTask& task, absl::Time deadline,
                    const std::function<bool()>& cancelled, AgentRun& run) const {
    const nlohmann::json body = {{"base_url", task.base_url}, {"api_key", task.session_id},
                                 {"row", task.row},           {"seed", task.seed},
                                 {"sample", task.sample},     {"attempt", task.attempt}};
    const absl::StatusOr<http::Response> answer =
        http::Post(address_, path_, "application/json", io::JsonText(body), deadline, cancelled);
    RETURN_IF_ERROR(answer.status()) << "environment.url at " << address_.ToString();
    if (answer->code != 200) {
      return absl::UnavailableError(absl::StrCat("environment.url answered HTTP ", answer->code,
                                                 ": ", answer->body.substr(0, kMaxShownBytes)));
    }
    const nlohmann::json object =
        nlohmann::json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat("environment.url: expected a JSON object as its answer, found ",
                       answer->body.substr(0, kMaxShownBytes)));
    }
    ASSIGN_OR_RETURN(run.reward, ReadReward(io::JsonText(object)));
    return absl::OkStatus();
  }

  const net::HostPort address_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AgentProgram>> MakeAgentServer(const std::string& url) {
  absl::string_view rest = url;
  const auto misuse = [&url] {
    return absl::InvalidArgumentError(
        absl::StrCat("environment.url: expected http://HOST:PORT/PATH, found \"", url, "\""));
  };
  if (!absl::ConsumePrefix(&rest, "http://")) return misuse();
  const size_t slash = rest.find('/');
  const std::string path(slash == absl::string_view::npos ? "/" : rest.substr(slash));
  const absl::StatusOr<net::HostPort> address =
      net::ParseHostPort(rest.substr(0, slash), kDefaultHttpPort);
  if (!address.ok()) return misuse();
  return std::make_unique<AgentServer>(*address, path);
}

}  // namespace tandem::environment
