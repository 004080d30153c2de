// tandem sync against a trainer and rollouts that run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/io/safetensors.h"
#include "tests/services/trainer/service/trainer_processes.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"

namespace tandem {
namespace {

using ::tandem::testing::BinaryPath;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDamagedTensor[] = "model.layers.1.mlp.up_proj.weight";

// A rollout that runs, of the trainer's configuration.
class Rollout {
 public:
  static absl::StatusOr<std::unique_ptr<Rollout>> Start(const TempFolder& folder,
                                                        const std::string& name,
                                                        std::vector<std::string> args = {}) {
    std::unique_ptr<Rollout> out(new Rollout);
    const std::string ready = folder / (name + ".ready");
    rpc::ChildProcessOptions options;
    options.name = name;
    options.argv = {BinaryPath("tandem-rollout"),
                    "--config",
                    folder / "trainer/config.yaml",
                    "--listen",
                    "127.0.0.1:0",
                    "--ready-file",
                    ready};
    options.argv.insert(options.argv.end(), args.begin(), args.end());
    options.log_path = folder / (name + ".log");
    ASSIGN_OR_RETURN(out->process_, rpc::ChildProcess::Start(std::move(options)));
    ASSIGN_OR_RETURN(out->address_,
                     rpc::WaitForReadyFile(ready, *out->process_, absl::Seconds(60)));
    return out;
  }
  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<rpc::ChildProcess> process_;
  std::string address_;
};

std::string CopyOfModel(const TempFolder& folder, const std::string& name) {
  const std::string golden =
      std::string(std::getenv("TANDEM_SOURCE")) + "/tests/services/trainer/golden";
  std::filesystem::create_directories(folder / name);
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(golden + "/" + file, folder / (name + "/" + file));
  }
  return folder / name;
}

// One bit of one element, the lowest.
void Damage(const std::string& model) {
  const std::string path = model + "/model.safetensors";
  std::string text = testing::ReadWhole(path);
  {
    ASSERT_OK_AND_ASSIGN(const auto file, io::SafetensorsFile::Open(path));
    ASSERT_OK_AND_ASSIGN(const auto tensor, file.Find(kDamagedTensor));
    ASSERT_OK_AND_ASSIGN(const auto first, file.Find(file.names().front()));
    const size_t header = text.size();
    size_t data = 0;
    for (const io::TensorView& view : file.tensors()) data += view.bytes.size();
    text[header - data + (tensor.bytes.data() - first.bytes.data()) + 20] ^= 1;
  }
  std::ofstream(path, std::ios::binary) << text;
}

class SyncCommandTest : public ::testing::Test {
 protected:
  void StartTrainer(int ranks,
                    config::v1::WeightTransport transport = config::v1::WEIGHT_TRANSPORT_RESHARD) {
    config::v1::RunConfig config = trainer::TinyConfig(folder_.path());
    config.mutable_model()->set_path(CopyOfModel(folder_, "model"));
    config.mutable_model()->set_random_init(false);
    config.mutable_rollout()->set_kv_cache_megabytes(8);
    config.mutable_trainer()->set_ranks(ranks);
    config.mutable_trainer()->set_weight_transport(transport);
    ASSERT_OK_AND_ASSIGN(trainer_, trainer::TrainerProcesses::Start(folder_ / "trainer", config));
  }

  ProgramResult Sync(const std::vector<const Rollout*>& rollouts, std::vector<std::string> more) {
    std::vector<std::string> args = {"sync", "--trainer", trainer_->address()};
    for (const Rollout* rollout : rollouts) {
      args.insert(args.end(), {"--rollout", rollout->address()});
    }
    args.insert(args.end(), more.begin(), more.end());
    return RunProgram("tandem", args);
  }

  const TempFolder folder_;
  std::unique_ptr<trainer::TrainerProcesses> trainer_;
};

class SyncTransportTest : public SyncCommandTest,
                          public ::testing::WithParamInterface<config::v1::WeightTransport> {};

TEST_P(SyncTransportTest, PublishesAndSeesWhoIsAtAnotherVersion) {
  StartTrainer(2, GetParam());
  ASSERT_OK_AND_ASSIGN(const auto first, Rollout::Start(folder_, "first"));
  ASSERT_OK_AND_ASSIGN(const auto second, Rollout::Start(folder_, "second"));

  const ProgramResult nothing_live = Sync({first.get(), second.get()}, {"--verify"});
  EXPECT_EQ(nothing_live.exit_code, 1);
  EXPECT_THAT(nothing_live.err,
              HasSubstr("rollout-0: nothing is committed yet; rank 0 at " + first->address()));

  const ProgramResult published = Sync({first.get(), second.get()}, {"--json"});
  ASSERT_EQ(published.exit_code, 0) << published.err;
  const auto update = JsonLines(published.out);
  ASSERT_EQ(update.size(), 3);
  EXPECT_EQ(update[1]["replica"], "rollout-1");
  EXPECT_EQ(update[1]["committed"], true);
  EXPECT_EQ(update[2]["policy_version"], 0);
  EXPECT_GT(update[2]["seconds"], 0);

  const ProgramResult verified = Sync({first.get(), second.get()}, {"--verify", "--json"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(verified.err, "");
  const auto agreed = JsonLines(verified.out);
  ASSERT_EQ(agreed.size(), 2);
  EXPECT_EQ(agreed[0]["agrees"], true);
  EXPECT_EQ(agreed[0]["num_different_tensors"], 0);

  // The policy learns, and one rollout alone is told.
  trainer::TrainerClient client(trainer_->address());
  ASSERT_OK_AND_ASSIGN(const auto step, client.TrainStep(1, trainer::v1::OBJECTIVE_SUPERVISED,
                                                         trainer::RandomSamples(2, 2, 3)));
  ASSERT_EQ(step.policy_version(), 1);
  ASSERT_EQ(Sync({first.get()}, {}).exit_code, 0);

  EXPECT_EQ(Sync({first.get()}, {"--verify"}).exit_code, 0);
  const ProgramResult behind = Sync({first.get(), second.get()}, {"--verify"});
  EXPECT_EQ(behind.exit_code, 1);
  EXPECT_THAT(behind.err,
              HasSubstr("rollout-1, rank 0: version 0 is live, but the trainer is at 1"));
  EXPECT_THAT(behind.out, AllOf(HasSubstr("rollout-0    yes"), HasSubstr("rollout-1    no")));
}

INSTANTIATE_TEST_SUITE_P(Transports, SyncTransportTest,
                         ::testing::Values(config::v1::WEIGHT_TRANSPORT_BROADCAST,
                                           config::v1::WEIGHT_TRANSPORT_RESHARD,
                                           config::v1::WEIGHT_TRANSPORT_DELTA),
                         [](const auto& info) {
                           return config::v1::WeightTransport_Name(info.param);
                         });

TEST_F(SyncCommandTest, NamesTheTensorOfWhichOneBitDiffers) {
  StartTrainer(3);
  const std::string damaged_model = CopyOfModel(folder_, "damaged");
  Damage(damaged_model);
  ASSERT_OK_AND_ASSIGN(const auto good,
                       Rollout::Start(folder_, "good", {"--model", folder_ / "model"}));
  ASSERT_OK_AND_ASSIGN(const auto damaged,
                       Rollout::Start(folder_, "damaged", {"--model", damaged_model}));

  const ProgramResult text = Sync({good.get(), damaged.get()}, {"--verify"});
  const ProgramResult json = Sync({good.get(), damaged.get()}, {"--verify", "--json"});

  EXPECT_EQ(text.exit_code, 1);
  EXPECT_EQ(json.exit_code, 1);
  const auto lines = JsonLines(json.out);
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0]["agrees"], true) << lines[0];
  EXPECT_EQ(lines[1]["agrees"], false);
  EXPECT_EQ(lines[1]["rank"], 0);
  EXPECT_EQ(lines[1]["tensor"], kDamagedTensor);
  EXPECT_EQ(lines[1]["num_different_tensors"], 1);
  EXPECT_NE(lines[1]["digest"], lines[1]["expected_digest"]);
  EXPECT_THAT(text.err, AllOf(HasSubstr(std::string("rollout-1, rank 0: tensor ") + kDamagedTensor),
                              HasSubstr(lines[1]["digest"].get<std::string>()),
                              HasSubstr(lines[1]["expected_digest"].get<std::string>()),
                              HasSubstr("1 of 38 tensors differ")));

  // An update of the same version puts it right.
  const ProgramResult published = Sync({good.get(), damaged.get()}, {});
  EXPECT_EQ(published.exit_code, 0) << published.err;
  EXPECT_THAT(published.err, HasSubstr(kDamagedTensor));
  EXPECT_EQ(Sync({good.get(), damaged.get()}, {"--verify"}).exit_code, 0);
  const ProgramResult again = Sync({good.get(), damaged.get()}, {});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_EQ(again.err, "");
}

TEST_F(SyncCommandTest, NobodyThereIsAFailureAndNoAddressAMisuse) {
  EXPECT_EQ(RunProgram("tandem", {"sync"}).exit_code, 2);
  EXPECT_EQ(RunProgram("tandem", {"sync", "--verify", "--trainer", "127.0.0.1:1"}).exit_code, 2);
  EXPECT_EQ(RunProgram("tandem", {"sync", "--config", "/nowhere.yaml"}).exit_code, 2);
  const ProgramResult nobody = RunProgram(
      "tandem", {"sync", "--verify", "--trainer", "127.0.0.1:1", "--rollout", "127.0.0.1:2"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("trainer at 127.0.0.1:1"));
  EXPECT_EQ(nobody.out, "");
}

}  // namespace
}  // namespace tandem
