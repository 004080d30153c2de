// Broken set-ups, each found, and its cure tried.
#include <gmock/gmock.h>
#include <google/protobuf/empty.pb.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "common/rpc/channel.h"
#include "common/rpc/child_process.h"
#include "common/rpc/process.h"
#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "tools/tandem/doctor/service_checks.h"

namespace tandem::doctor {
namespace {

using nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStories[] = "models/tinystories-656k";

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DATA(kStories);
    model_ = folder_ / "model";
    std::filesystem::copy(testing::TestData(kStories), model_,
                          std::filesystem::copy_options::recursive);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(model_)) {
      std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
    }
    folder_.Write("data.jsonl", "{\"prompt\": \"Once\", \"answer\": \"upon\"}\n");
  }

  // Findings that are no "ok", of a configuration with these overrides.
  std::vector<json> Examine(std::vector<std::string> overrides, int expected_exit = 1) {
    std::vector<std::string> args = {
        "doctor", "--json",
        "--set",  "model.path=" + model_,
        "--set",  "data.train_files=[" + (folder_ / "data.jsonl") + "]",
        "--set",  "run_dir=" + (folder_ / "run")};
    for (const std::string& value : overrides) args.insert(args.end(), {"--set", value});
    const ProgramResult result = RunProgram("tandem", args, 60);
    EXPECT_EQ(result.exit_code, expected_exit) << result.out << result.err;
    std::vector<json> out;
    for (const json& finding : JsonLines(result.out)) {
      if (finding["severity"] == "error") out.push_back(finding);
    }
    return out;
  }

  static void ExpectOnly(const std::vector<json>& findings, const std::string& what,
                         const std::string& found, const std::string& cure) {
    ASSERT_EQ(findings.size(), 1u) << json(findings).dump(1);
    EXPECT_THAT(findings[0]["what"].get<std::string>(), HasSubstr(what));
    EXPECT_THAT(findings[0]["found"].get<std::string>(), HasSubstr(found));
    EXPECT_THAT(findings[0]["cure"].get<std::string>(), HasSubstr(cure));
  }

  std::unique_ptr<rpc::ChildProcess> StartRollout(std::string& address) {
    const std::string ready = folder_ / "rollout.ready";
    auto child = rpc::ChildProcess::Start(
        {.name = "rollout",
         .argv = {testing::BinaryPath("tandem-rollout"), "--model", model_, "--listen",
                  "127.0.0.1:0", "--ready-file", ready, "--set", "rollout.kv_cache_megabytes=8"}});
    EXPECT_OK(child.status());
    auto found = rpc::WaitForReadyFile(ready, **child, absl::Seconds(60));
    EXPECT_OK(found.status());
    if (found.ok()) address = *found;
    return *std::move(child);
  }

  const TempFolder folder_;
  std::string model_;
};

TEST_F(DoctorTest, FindsNothingWrongWithWhatIsRight) {
  EXPECT_TRUE(Examine({}, /*expected_exit=*/0).empty());
}

TEST_F(DoctorTest, AWrongPort) {
  std::string address;
  const auto rollout = StartRollout(address);
  // Nobody listens there.
  ExpectOnly(Examine({"trainer.endpoint=127.0.0.1:1"}), "trainer 127.0.0.1:1", "Connection refused",
             "correct trainer.endpoint");
  // Another service does.
  ExpectOnly(Examine({"trainer.endpoint=" + address}), "trainer " + address, "is not a trainer",
             "the address of another service");
  // The cure.
  EXPECT_TRUE(Examine({"rollout.endpoints=[" + address + "]"}, 0).empty());
}

TEST_F(DoctorTest, ANameThatNobodyKnows) {
  ExpectOnly(Examine({"rollout.endpoints=[no-such-host.invalid:5001]"}), "rollout no-such-host",
             "the name no-such-host.invalid", "correct rollout.endpoints");
}

TEST_F(DoctorTest, AMissingShard) {
  const std::string weights = model_ + "/model.safetensors";
  ASSERT_TRUE(std::filesystem::exists(weights));
  std::filesystem::rename(weights, weights + ".away");
  ExpectOnly(Examine({}), "weights", "model.safetensors", "download or copy the folder again");
  std::filesystem::rename(weights + ".away", weights);
  EXPECT_TRUE(Examine({}, 0).empty());
}

TEST_F(DoctorTest, WeightsOfAnotherModel) {
  const std::string path = model_ + "/config.json";
  json config = json::parse(testing::ReadWhole(path));
  const int layers = config["num_hidden_layers"];
  config["num_hidden_layers"] = layers + 1;
  std::ofstream(path) << config.dump();
  ExpectOnly(Examine({}), "weights", "missing: model.layers." + std::to_string(layers),
             "belong to different models");
  config["num_hidden_layers"] = layers;
  std::ofstream(path) << config.dump();
  EXPECT_TRUE(Examine({}, 0).empty());
}

TEST_F(DoctorTest, AFullDisk) {
  const std::string disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  if (mount("tandem-test", disk.c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "a small disk cannot be mounted here";
  }
  const std::vector<json> findings = Examine({"run_dir=" + disk + "/run", "trainer.save_freq=1"});
  mount("tandem-test", disk.c_str(), "tmpfs", MS_REMOUNT, "size=80m");
  const std::vector<json> without_room =
      Examine({"run_dir=" + disk + "/run", "trainer.save_freq=1", "trainer.keep_last=3"});
  const std::vector<json> cured =
      Examine({"run_dir=" + disk + "/run", "trainer.save_interval_seconds=0"}, /*expected_exit=*/0);
  umount2(disk.c_str(), MNT_DETACH);
  ExpectOnly(findings, "disk of " + disk, "free; a run leaves about", "set run_dir elsewhere");
  // What would not be enough is not offered.
  EXPECT_THAT(findings[0]["cure"].get<std::string>(), Not(HasSubstr("trainer.save_freq")));
  ExpectOnly(without_room, "disk of " + disk, "free; a run leaves about",
             "trainer.save_freq=0 and trainer.save_interval_seconds=0");
  EXPECT_TRUE(cured.empty());
}

TEST_F(DoctorTest, ARewardThatIsNotThere) {
  const std::vector<json> missing = Examine({"reward.path=" + (folder_ / "none.py")});
  ExpectOnly(missing, "reward", "no file", "correct the reward");
  EXPECT_EQ(missing[0]["found"].get<std::string>().find("reward: "), std::string::npos);
  const std::string file = folder_.Write("my_reward.py", "def judge(text): return 1\n");
  ExpectOnly(Examine({"reward.path=" + file}), "reward", "expected compute_score(",
             "correct the reward");
  ExpectOnly(Examine({"reward.name=service", "reward.endpoint=127.0.0.1:1"}), "reward",
             "no RewardService answered at 127.0.0.1:1", "start the service");
  ExpectOnly(Examine({"reward.name=exakt_match"}), "reward", "did you mean exact_match?",
             "correct the reward");
  // The cure.
  folder_.Write("my_reward.py", "def compute_score(solution_str, **kwargs): return 1\n");
  EXPECT_TRUE(Examine({"reward.path=" + file}, 0).empty());
}

TEST_F(DoctorTest, ALineOfTheDataThatIsNone) {
  folder_.Write("data.jsonl", "{\"prompt\": \"Once\", \"answer\": \"1\"}\n{\"prompt\": \n");
  ExpectOnly(Examine({}), "data.train_files", "data.jsonl:2", "correct the line");
}

TEST_F(DoctorTest, AnswersThatTheRewardCannotUse) {
  ExpectOnly(Examine({"data.answer_key=answr"}), "data.train_files",
             "data.jsonl:1: expected the key 'answr' (data.answer_key), found answer, prompt; did "
             "you mean 'answer'?",
             "correct data.answer_key");
  // `sft` takes them.
  EXPECT_TRUE(Examine({"reward.name=gsm8k"}, /*expected_exit=*/0).empty());
  // Pairs need no answer.
  folder_.Write("data.jsonl",
                "{\"prompt\": \"Once\", \"chosen\": \"upon\", \"rejected\": \"on\"}\n");
  EXPECT_TRUE(Examine({}, /*expected_exit=*/0).empty());
}

TEST_F(DoctorTest, AServiceOfAnotherModel) {
  std::string address;
  const auto rollout = StartRollout(address);
  const std::string path = model_ + "/config.json";
  const json config = json::parse(testing::ReadWhole(path));
  // Of a family, models differ in size alone.
  for (const auto& [key, more] : {std::pair{"vocab_size", 8}, std::pair{"intermediate_size", 32},
                                  std::pair{"num_hidden_layers", 1}}) {
    json other = config;
    other[key] = config[key].get<int>() + more;
    std::ofstream(path) << other.dump();
    ExpectOnly(Examine({"rollout.endpoints=[" + address + "]", "model.random_init=true"}),
               "rollout " + address, "the configuration names",
               "start it with the same model.path");
  }
  std::ofstream(path) << config.dump();
  EXPECT_TRUE(Examine({"rollout.endpoints=[" + address + "]"}, 0).empty());
}

// Answers every call as a healthy rollout whose clock is wrong.
class SkewedServer {
 public:
  explicit SkewedServer(absl::Duration ahead) : service_(ahead) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~SkewedServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(grpc::GenericCallbackServerContext* context, absl::Duration ahead) {
      context->AddTrailingMetadata(rpc::kServerTime,
                                   absl::StrCat(absl::ToUnixMillis(absl::Now() + ahead)));
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      const grpc::Slice serving("\x08\x01", 2);  // status: SERVING; state: JOINING, elsewhere
      response_ = grpc::ByteBuffer(&serving, 1);
      StartWriteAndFinish(&response_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer request_;
    grpc::ByteBuffer response_;
  };
  class Service : public grpc::CallbackGenericService {
   public:
    explicit Service(absl::Duration ahead) : ahead_(ahead) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      return new Reactor(context, ahead_);
    }

   private:
    const absl::Duration ahead_;
  };

  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(Findings, CountInWords) {
  EXPECT_EQ(Count(1, "core"), "1 core");
  EXPECT_EQ(Count(2, "core"), "2 cores");
}

std::vector<Finding> Errors(const std::string& address) {
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_rollout()->add_endpoints(address);
  Findings findings;
  CheckServices(config, std::nullopt, {.version = ""}, findings);
  std::vector<Finding> out;
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::kError) out.push_back(finding);
  }
  return out;
}

TEST(ServiceChecks, ASkewedClock) {
  const SkewedServer ahead(absl::Seconds(90));
  std::vector<Finding> found = Errors(ahead.address());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].found, HasSubstr("90.0 s ahead of"));
  EXPECT_THAT(found[0].cure, HasSubstr("time service"));
  const SkewedServer behind(absl::Seconds(-5));
  found = Errors(behind.address());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].found, HasSubstr("5.0 s behind"));
  const SkewedServer right(absl::ZeroDuration());
  EXPECT_TRUE(Errors(right.address()).empty());
}

TEST(ServiceChecks, AnotherVersionIsAWarning) {
  const SkewedServer server(absl::ZeroDuration());  // reports no version
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_rollout()->add_endpoints(server.address());
  Findings findings;

  CheckServices(config, std::nullopt, {.version = "0.1.0+g1a2b3c4"}, findings);

  ASSERT_FALSE(findings.all().empty());
  EXPECT_EQ(findings.all()[0].severity, Severity::kWarning);
  EXPECT_EQ(findings.all()[0].found, "version unknown, but this program is 0.1.0+g1a2b3c4");
}

}  // namespace
}  // namespace tandem::doctor
