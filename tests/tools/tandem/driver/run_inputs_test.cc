#include "tools/tandem/driver/run_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/config/load.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/driver/driver_state.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RunInputsTest : public ::testing::Test {
 protected:
  RunInputsTest() : config_(config::DefaultRunConfig()) {
    config_.mutable_model()->set_path(folder_ / "model");
    folder_.Write("model/config.json", R"({"rope_theta": 10000})");
    folder_.Write("model/tokenizer.json", R"({"model": {}})");
    folder_.Write("model/tokenizer_config.json", R"({"chat_template": "{{a}}", "eos_token": "x"})");
  }

  RunInputs Digest() const {
    absl::StatusOr<RunInputs> inputs = DigestModelInputs(config_);
    EXPECT_OK(inputs);
    AddDataInputs(kDataInput, {{"/data/train.jsonl", data_digest_}}, *inputs);
    return *std::move(inputs);
  }
  InputChanges ChangesSince(const RunInputs& before) const {
    return CompareInputs(before, Digest());
  }

  const TempFolder folder_;
  config::v1::RunConfig config_;
  std::string data_digest_ = "d1";
};

TEST_F(RunInputsTest, AreTheSameAtAnotherPlace) {
  const RunInputs before = Digest();
  std::filesystem::rename(folder_ / "model", folder_ / "moved");
  config_.mutable_model()->set_path(folder_ / "moved");

  EXPECT_THAT(ChangesSince(before).kinds, IsEmpty());
}

TEST_F(RunInputsTest, NameWhatHasChangedWithBothDigests) {
  const RunInputs before = Digest();
  folder_.Write("model/config.json", R"({"rope_theta": 500000})");
  data_digest_ = "d2";

  const InputChanges changes = ChangesSince(before);

  EXPECT_THAT(changes.kinds, ElementsAre("config", "data"));
  EXPECT_THAT(changes.lines,
              ElementsAre(AllOf(HasSubstr("model/config.json"), HasSubstr(before[0].digest())),
                          "data: /data/train.jsonl: expected the digest d1, found d2"));
}

TEST_F(RunInputsTest, TellTheChatTemplateFromTheTokenizer) {
  const RunInputs before = Digest();
  folder_.Write("model/tokenizer_config.json", R"({"chat_template": "{{b}}", "eos_token": "x"})");
  EXPECT_THAT(ChangesSince(before).kinds, ElementsAre("chat_template"));
  folder_.Write("model/tokenizer_config.json", R"({"chat_template": "{{a}}", "eos_token": "y"})");
  EXPECT_THAT(ChangesSince(before).kinds, ElementsAre("tokenizer"));
  folder_.Write("model/tokenizer_config.json", R"({"eos_token": "x", "chat_template": "{{a}}"})");
  EXPECT_THAT(ChangesSince(before).kinds, IsEmpty());
  folder_.Write("model/chat_template.jinja", "{{c}}");
  EXPECT_THAT(ChangesSince(before).kinds, ElementsAre("chat_template"));
}

TEST_F(RunInputsTest, CountAFileThatCameOrWent) {
  const RunInputs before = Digest();
  std::filesystem::remove(folder_ / "model/tokenizer.json");
  folder_.Write("model/generation_config.json", "{}");
  EXPECT_THAT(ChangesSince(before).kinds, ElementsAre("config", "tokenizer"));
}

TEST_F(RunInputsTest, CompareTestDataWhereBothHaveIt) {
  RunInputs before = Digest(), after = Digest();
  AddDataInputs(kTestDataInput, {{"/t", "1"}}, before);
  EXPECT_THAT(CompareInputs(before, after).kinds, IsEmpty());
  AddDataInputs(kTestDataInput, {{"/t", "2"}}, after);
  EXPECT_THAT(CompareInputs(before, after).kinds, ElementsAre("test_data"));
}

TEST_F(RunInputsTest, IncludeTheFamilyFile) {
  const RunInputs without = Digest();
  config_.mutable_model()->set_family_file(
      folder_.Write("families.yaml", "families: [{architecture: X, activation: silu}]"));
  const RunInputs before = Digest();
  EXPECT_THAT(CompareInputs(without, before).lines,
              ElementsAre(AllOf(HasSubstr("family_file"), HasSubstr("families.yaml"),
                                HasSubstr("expected no such file"))));
  EXPECT_THAT(CompareInputs(before, without).lines,
              ElementsAre(AllOf(HasSubstr("families.yaml"), HasSubstr("found none"))));
  EXPECT_THAT(ChangesSince(before).kinds, IsEmpty());
  folder_.Write("families.yaml", "families: [{architecture: X, activation: gelu}]");
  EXPECT_THAT(ChangesSince(before).kinds, ElementsAre("family_file"));
}

TEST_F(RunInputsTest, IncludeEachPythonReward) {
  const auto digest = [this] {
    RunInputs inputs;
    EXPECT_OK(AddRewardInputs(config_.reward(), inputs));
    return inputs;
  };
  const RunInputs without = digest();
  config_.mutable_reward()->add_rewards()->set_path(folder_.Write("a.py", "one"));
  config_.mutable_reward()->add_rewards()->set_path(folder_.Write("b.py", "two"));
  const RunInputs before = digest();
  EXPECT_THAT(CompareInputs(before, digest()).kinds, IsEmpty());
  EXPECT_THAT(CompareInputs(without, before).kinds, ElementsAre("reward"));
  folder_.Write("b.py", "three");
  EXPECT_THAT(CompareInputs(before, digest()).lines,
              ElementsAre(AllOf(HasSubstr("reward"), HasSubstr("b.py"))));
}

TEST_F(RunInputsTest, IncludeTheFoldersOfTeachers) {
  const auto digest = [this] {
    RunInputs inputs;
    EXPECT_OK(AddTeacherInputs(config_, inputs));
    return inputs;
  };
  const RunInputs without = digest();
  config_.mutable_teacher()->set_endpoint("there:5000");
  EXPECT_THAT(digest(), IsEmpty());
  config_.mutable_teacher()->clear_endpoint();
  const std::string path = testing::WriteTinyModel(folder_);
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  folder_.Write("model/model.safetensors", length + header + "1234");
  config_.mutable_teacher()->set_path(path);
  const RunInputs before = digest();
  EXPECT_THAT(CompareInputs(without, before).kinds, ElementsAre("teacher"));
  EXPECT_THAT(CompareInputs(before, without).kinds, ElementsAre("teacher"));
  EXPECT_THAT(CompareInputs(before, digest()).kinds, IsEmpty());

  std::filesystem::rename(path, folder_ / "moved");
  config_.mutable_teacher()->set_path(folder_ / "moved");
  EXPECT_THAT(CompareInputs(before, digest()).kinds, IsEmpty());
  // One weight is another.
  {
    std::fstream weights(folder_ / "moved/model.safetensors",
                         std::ios::in | std::ios::out | std::ios::binary);
    weights.seekp(-1, std::ios::end);
    weights.put('?');
  }
  EXPECT_THAT(CompareInputs(before, digest()).lines,
              ElementsAre(AllOf(HasSubstr("teacher: "), HasSubstr("moved/model.safetensors"))));
}

TEST_F(RunInputsTest, TakeACheckpointThatHasNoDigestsOfRewardAndFamilyFile) {
  RunInputs old_release;
  for (const auto& input : Digest()) {
    if (input.kind() != kFamilyFileInput) old_release.push_back(input);
  }
  config_.mutable_model()->set_family_file(folder_.Write("families.yaml", "families: []"));
  RunInputs now = Digest();
  EXPECT_OK(AddRewardInputs(config_.reward(), now));

  EXPECT_THAT(CompareInputs(old_release, now).kinds, IsEmpty());
}

class CheckDriverStateTest : public RunInputsTest {
 protected:
  CheckDriverStateTest() {
    run_.command = state_.mutable_command()->assign("train");
    run_.num_prompts = 10;
    state_.set_num_prompts(10);
    run_.inputs = Digest();
    const RunInputs saved = Digest();
    state_.mutable_inputs()->Assign(saved.begin(), saved.end());
    state_.mutable_ahead()->set_step(3);
  }
  absl::Status Check() { return CheckDriverState(run_, state_, notes_); }

  RunIdentity run_;
  v1::DriverState state_;
  std::vector<std::string> notes_;
};

TEST_F(CheckDriverStateTest, SaysNothingOfTheSameInputs) {
  EXPECT_OK(Check());
  EXPECT_THAT(notes_, IsEmpty());
  EXPECT_TRUE(state_.has_ahead());
}

TEST_F(CheckDriverStateTest, RefusesOtherInputsAndNamesTheFlag) {
  run_.inputs.back().set_digest("d2");
  run_.inputs.front().set_digest("c2");
  run_.allow_changed = {"data"};

  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("expected the digest d1, found d2"),
                                      HasSubstr("c2"), HasSubstr("--allow-changed=config,data"))));
}

TEST_F(CheckDriverStateTest, DropsSamplesOfTheNextStepThatAreOfOtherData) {
  run_.inputs.back().set_digest("d2");
  run_.num_prompts = 12;
  run_.allow_changed = {"data"};

  EXPECT_OK(Check());
  EXPECT_FALSE(state_.has_ahead());
  EXPECT_THAT(notes_, Contains(HasSubstr("dropping")));
}

TEST_F(CheckDriverStateTest, KeepsThemWhereTheConfigurationAloneChanged) {
  run_.inputs.front().set_digest("c2");
  run_.allow_changed = {"config", "tokenizer"};

  EXPECT_OK(Check());
  EXPECT_TRUE(state_.has_ahead());
  EXPECT_THAT(notes_, Contains(HasSubstr("--allow-changed")));
}

TEST_F(CheckDriverStateTest, TakesACheckpointWithoutDigestsAndSaysSo) {
  state_.clear_inputs();
  EXPECT_OK(Check());
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("has no digests")));
  run_.num_prompts = 12;
  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                Not(HasSubstr("expected the digest"))));
}

}  // namespace
}  // namespace tandem::driver
