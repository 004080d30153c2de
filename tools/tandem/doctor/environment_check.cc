#include "tools/tandem/doctor/environment_check.h"

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tools/tandem/driver/episodes.h"

namespace tandem::doctor {
namespace {

constexpr absl::Duration kEnvironmentWait = absl::Seconds(5);

absl::Status FindEnvironment(const config::v1::RunConfig& config) {
  const auto episodes = driver::Episodes::Create(config, /*tokenizer=*/nullptr);
  return episodes.ok() ? (*episodes)->Check(kEnvironmentWait, /*interrupted=*/nullptr)
                       : episodes.status();
}

}  // namespace

void CheckEnvironment(const config::v1::RunConfig& config, Findings& findings) {
  const config::v1::EnvironmentConfig& environment = config.environment();
  if (environment.name() != config::v1::ENVIRONMENT_NAME_SERVICE &&
      environment.name() != config::v1::ENVIRONMENT_NAME_AGENT) {
    return;
  }
  const absl::Status found = FindEnvironment(config);
  if (found.ok()) {
    findings.Ok("environment",
                !environment.command().empty()
                    ? absl::StrCat("the program of \"", environment.command(), "\" is there")
                : !environment.url().empty()
                    ? absl::StrCat(environment.url(), " is asked for episodes")
                    : absl::StrCat(environment.endpoint(), " answers"));
    return;
  }
  findings.Fail("environment", std::string(absl::StripPrefix(found.message(), "environment: ")),
                "install the program, start the service, or correct the keys in the section "
                "environment");
}

}  // namespace tandem::doctor
