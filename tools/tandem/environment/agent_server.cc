#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/client.h"
#include "common/http/url.h"
#include "common/io/json_text.h"
#include "common/status/status_macros.h"
#include "tools/tandem/environment/agent_program.h"

namespace tandem::environment {
namespace {

constexpr size_t kMaxShownBytes = 512;

class AgentServer : public AgentProgram {
 public:
  explicit AgentServer(http::Url url) : url_(std::move(url)) {}

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
        http::Post({.url = url_, .body = io::JsonText(body)}, deadline, cancelled);
    RETURN_IF_ERROR(answer.status()) << "environment.url at " << url_.ToString();
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

  const http::Url url_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AgentProgram>> MakeAgentServer(const std::string& url) {
  absl::StatusOr<http::Url> parsed = http::ParseUrl(url);
  RETURN_IF_ERROR(parsed.status()) << "environment.url";
  return std::make_unique<AgentServer>(*std::move(parsed));
}

}  // namespace tandem::environment
