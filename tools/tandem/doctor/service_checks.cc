#include "tools/tandem/doctor/service_checks.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/probe/reach.h"
#include "common/rpc/channel.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/status_conversion.h"
#include "common/version/version.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tools/tandem/driver/endpoint_list.h"

namespace tandem::doctor {
namespace {

enum class Role { kTrainer, kRollout };

struct Service {
  Role role = Role::kTrainer;
  std::string key;  // of the configuration
  std::string address;

  std::string what() const {
    return absl::StrCat(role == Role::kTrainer ? "trainer " : "rollout ", address);
  }
};

// Whether somebody listens there: what gRPC alone would say only after its deadline, and not why.
bool CheckConnection(const Service& service, absl::Duration timeout, Findings& findings) {
  const diagnostics::v1::ReachReport report = probe::Connect(service.address, timeout);
  switch (report.outcome()) {
    case diagnostics::v1::REACH_OUTCOME_REACHED:
      return true;
    case diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN:
      findings.Fail(service.what(), report.error(),
                    absl::StrCat("correct ", service.key, ", or the resolver of this host"));
      return false;
    default:
      findings.Fail(
          service.what(), absl::StrCat("no connection: ", report.error()),
          absl::StrCat("start the service there, open the port in the firewall, or correct ",
                       service.key));
      return false;
  }
}

void CheckClock(const Service& service, const rpc::ClockDifference& clocks,
                const ServiceCheckOptions& options, Findings& findings) {
  // What the answer's way may explain is no difference.
  const absl::Duration certain = absl::AbsDuration(clocks.ahead) - clocks.round_trip / 2;
  if (certain <= options.max_clock_difference) return;
  findings.Fail(service.what(),
                absl::StrFormat("its clock is %.1f s %s this host's",
                                std::fabs(absl::ToDoubleSeconds(clocks.ahead)),
                                clocks.ahead > absl::ZeroDuration() ? "ahead of" : "behind"),
                "run a time service on both hosts (chrony, systemd-timesyncd)");
}

void CheckVersion(const Service& service, const std::string& version,
                  const ServiceCheckOptions& options, Findings& findings) {
  if (version::IsSameBuild(version, options.version)) return;
  findings.Warn(service.what(),
                absl::StrCat("version ", version.empty() ? "unknown" : version,
                             ", but this program is ", options.version),
                "deploy one version everywhere");
}

// The parameter count tells models of a family apart, which share architecture and vocabulary.
std::string DescribeModel(const std::string& architecture, int64_t vocab_size,
                          int64_t num_parameters) {
  return absl::StrCat(architecture, " with ", vocab_size, " tokens and ", num_parameters,
                      " parameters");
}

template <typename Info>
void CheckServedModel(const Service& service, const Info& info,
                      const std::optional<model::ModelSpec>& spec, Findings& findings) {
  if (!spec.has_value()) return;
  const std::string served =
      DescribeModel(info.architecture(), info.vocab_size(), info.num_parameters());
  const std::string named =
      DescribeModel(spec->architecture, spec->vocab_size, spec->num_parameters());
  if (served == named) return;
  findings.Fail(service.what(),
                absl::StrCat("serves ", served, ", but the configuration names ", named),
                "start it with the same model.path");
}

// Checks a service's own report; returns false if there is none.
template <typename Info>
bool CheckInfo(const Service& service, const absl::Status& asked, const Info& info,
               const std::optional<model::ModelSpec>& spec, const ServiceCheckOptions& options,
               Findings& findings) {
  if (absl::IsUnimplemented(asked)) {
    // gRPC itself answers so, without a message.
    findings.Fail(service.what(),
                  service.role == Role::kTrainer ? "responds, but is not a trainer"
                                                 : "responds, but is not a rollout",
                  absl::StrCat("this is the address of another service; correct ", service.key));
    return false;
  }
  if (!asked.ok()) {
    findings.Fail(service.what(), std::string(asked.message()), "read its log");
    return false;
  }
  CheckVersion(service, info.build_version(), options, findings);
  CheckServedModel(service, info, spec, findings);
  return true;
}

// Returns nullopt if the service is not part of a fleet.
std::optional<FleetService> CheckService(const Service& service,
                                         const std::optional<model::ModelSpec>& spec,
                                         const ServiceCheckOptions& options, Findings& findings) {
  if (!CheckConnection(service, options.timeout, findings)) return std::nullopt;
  FleetService found;
  found.is_trainer = service.role == Role::kTrainer;
  found.key = service.key;
  const auto channel = rpc::MakeChannel(service.address, {.retry = false});
  const auto clocks = rpc::CompareClocks(channel, options.timeout);
  if (!clocks.ok()) {
    findings.Fail(
        service.what(),
        absl::StrCat("the server there is not a Tandem service: ", clocks.status().message()),
        absl::StrCat("correct the port of ", service.key));
    return std::nullopt;
  }
  const auto context = rpc::MakeContext(options.timeout);
  std::string state;
  if (service.role == Role::kTrainer) {
    trainer::v1::GetModelInfoResponse info;
    const absl::Status asked = rpc::FromGrpcStatus(
        trainer::v1::TrainerService::NewStub(channel)->GetModelInfo(context.get(), {}, &info));
    if (!CheckInfo(service, asked, info, spec, options, findings)) return std::nullopt;
    found.num_ranks = info.num_ranks();
    found.addresses = {service.address};
    state = absl::StrFormat("%s, step %d, policy version %d", Count(info.num_ranks(), "rank"),
                            info.step(), info.policy_version());
  } else {
    rollout::v1::GetServerInfoResponse info;
    absl::Status asked = rpc::FromGrpcStatus(
        rollout::v1::RolloutService::NewStub(channel)->GetServerInfo(context.get(), {}, &info));
    if (asked.ok()) asked = rpc::CheckAnswerEnums(info);
    if (!CheckInfo(service, asked, info, spec, options, findings)) return std::nullopt;
    // The address that it is known by stands for rank 0.
    found.num_ranks = std::max(1, info.rank_addresses_size());
    found.addresses = {info.rank_addresses().begin(), info.rank_addresses().end()};
    if (found.addresses.empty()) found.addresses.emplace_back();
    found.addresses[0] = service.address;
    state = absl::StrCat(
        absl::AsciiStrToLower(
            rollout::v1::RolloutState_Name(info.state()).substr(sizeof("ROLLOUT_STATE_") - 1)),
        ", policy version ", info.policy_version());
  }
  CheckClock(service, *clocks, options, findings);
  findings.Ok(service.what(),
              absl::StrFormat("responds in %.1f ms: %s",
                              absl::ToDoubleMilliseconds(clocks->round_trip), state));
  return found;
}

}  // namespace

std::vector<FleetService> CheckServices(const config::v1::RunConfig& config,
                                        const std::optional<model::ModelSpec>& spec,
                                        const ServiceCheckOptions& options, Findings& findings) {
  std::vector<FleetService> fleet;
  const auto check = [&](const Service& service) {
    std::optional<FleetService> found = CheckService(service, spec, options, findings);
    if (found.has_value()) fleet.push_back(*std::move(found));
  };
  if (!config.trainer().endpoint().empty()) {
    check({Role::kTrainer, "trainer.endpoint", config.trainer().endpoint()});
  }
  auto endpoints = driver::EndpointList::Open(config.rollout(), nullptr);
  if (!endpoints.ok()) {
    findings.Fail("rollouts", std::string(endpoints.status().message()),
                  "correct rollout.endpoints_file");
    return fleet;
  }
  for (const auto& replica : endpoints->Current()) {
    check({Role::kRollout, "rollout.endpoints", replica.address});
  }
  return fleet;
}

}  // namespace tandem::doctor
