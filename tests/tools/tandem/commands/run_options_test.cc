#include "tools/tandem/commands/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::commands {
namespace {

using ::tandem::testing::TempFolder;

// A working directory for a while.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::string& path) : former_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() { std::filesystem::current_path(former_); }

 private:
  const std::filesystem::path former_;
};

RunOptions WithOverrides(std::vector<std::string> overrides) {
  RunOptions options;
  options.overrides = std::move(overrides);
  return options;
}

TEST(ResolveConfig, MakesPathsThatServicesReadAbsolute) {
  const TempFolder folder;
  folder.Write("reward.py", "def compute_score(data_source, solution_str, ground_truth): return 1");
  folder.Write(
      "families.yaml",
      "families:\n- {architecture: OwnForCausalLM, model_type: own, like: LlamaForCausalLM}\n");
  // Resolves symbolic links, as the system's working directory does.
  const std::string here = std::filesystem::canonical(folder.path()).string();
  const WorkingDirectory inside(here);
  const config::FileNeeds none{.model = false};

  ASSERT_OK_AND_ASSIGN(
      config::v1::RunConfig config,
      ResolveConfig(WithOverrides({"model.path=policy", "model.family_file=families.yaml",
                                   "critic.model.path=value", "run_dir=run", "reward.name=''",
                                   "reward.path=reward.py"}),
                    none));
  EXPECT_EQ(config.model().path(), here + "/policy");
  EXPECT_EQ(config.model().family_file(), here + "/families.yaml");
  EXPECT_EQ(config.critic().model().path(), here + "/value");
  EXPECT_EQ(config.run_dir(), here + "/run");
  EXPECT_EQ(config.reward().path(), here + "/reward.py");

  ASSERT_OK_AND_ASSIGN(
      config, ResolveConfig(WithOverrides({"model.path=policy", "reward.name=''",
                                           "reward.rewards=[{path: reward.py}, {name: gsm8k}]"}),
                            none));
  EXPECT_EQ(config.reward().rewards(0).path(), here + "/reward.py");
  EXPECT_EQ(config.reward().path(), "");
  EXPECT_EQ(config.critic().model().path(), "");
}

}  // namespace
}  // namespace tandem::commands
