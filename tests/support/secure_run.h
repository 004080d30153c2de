// Runs with certificates and tokens, and the samples of a run that nobody disturbs.
#ifndef TANDEM_TESTS_SUPPORT_SECURE_RUN_H_
#define TANDEM_TESTS_SUPPORT_SECURE_RUN_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/security/role.h"
#include "tests/support/addition_data.h"
#include "tests/support/certificates.h"
#include "tests/support/program.h"

namespace tandem::testing {

// Variables of this process, and so of the programs that it starts, until the end of the scope.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables)
      : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }

 private:
  const std::map<std::string, std::string> variables_;
};

// Certificates of every role in `folder`, by the one set of paths that all programs are given.
inline std::map<std::string, std::string> Certificates(const TempFolder& folder,
                                                       const TestAuthority& authority) {
  for (const security::Role role : security::kAllRoles) authority.Issue(role);
  return {{"TANDEM_TLS_CERT", folder / "{role}.crt"},
          {"TANDEM_TLS_KEY", folder / "{role}.key"},
          {"TANDEM_TLS_CA", authority.ca_path()}};
}

inline constexpr char kTokenWord[] = "token-that-nobody-may-read";

inline std::map<std::string, std::string> Tokens(const TempFolder& folder) {
  std::string table;
  for (const security::Role role : security::kAllRoles) {
    const std::string name(security::RoleName(role));
    const std::string token = std::string(kTokenWord) + "-" + name;
    table += name + " " + token + "\n";
    folder.Write(name + ".token", token);
  }
  return {{"TANDEM_TOKENS", folder.Write("tokens", table)},
          {"TANDEM_TOKEN_FILE", folder / "{role}.token"}};
}

inline std::vector<std::string> With(std::vector<std::string> args, std::vector<std::string> more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// What a run has sampled and learnt, to be held against another's.
inline std::vector<nlohmann::json> Samples(const TempFolder& folder, int num_steps) {
  std::vector<nlohmann::json> out;
  for (int step = 1; step <= num_steps; ++step) {
    for (auto& row :
         JsonLines(ReadWhole(folder / "run/rollouts/" + std::to_string(step) + ".jsonl"))) {
      out.push_back({row["response_ids"], row["logprobs"], row["rewards"], row["reward"]});
    }
  }
  return out;
}

// Makes a run one that gives the same bits whenever it is repeated.
inline std::vector<std::string> Repeatable(int num_steps, int seed) {
  const std::string steps = std::to_string(num_steps);
  return {"--set", "numerics=exact",
          "--set", "seed=" + std::to_string(seed),
          "--set", "trainer.total_steps=" + steps,
          "--set", "trainer.test_freq=" + steps};
}

// What it samples where nobody disturbs it; nothing where it fails.
inline std::vector<nlohmann::json> QuietSamples(const std::vector<std::string>& more,
                                                int num_steps) {
  const TempFolder folder;
  const ProgramResult quiet = RunProgram("tandem", With(TinyRun(folder, "train"), more));
  EXPECT_EQ(quiet.exit_code, 0) << quiet.err;
  return quiet.exit_code == 0 ? Samples(folder, num_steps) : std::vector<nlohmann::json>();
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_SECURE_RUN_H_
