#include "common/config/to_yaml.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "common/config/load.h"
#include "common/config/summary.h"
#include "tests/common/config/config_file.h"
#include "tests/support/status_matchers.h"

namespace tandem::config {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

class ToYamlTest : public ConfigTest {
 protected:
  void ExpectRoundTrip(const v1::RunConfig& config) {
    ASSERT_OK_AND_ASSIGN(const v1::RunConfig back,
                         LoadRunConfig({Write("config.yaml", ToYaml(config))}, {}));
    EXPECT_TRUE(MessageDifferencer::Equals(config, back)) << ToYaml(config) << "\n" << ToYaml(back);
  }
};

TEST_F(ToYamlTest, TheDefaultsRoundTrip) {
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig({}, {}));
  ExpectRoundTrip(config);
  EXPECT_THAT(ToYaml(config), HasSubstr("  train_files: []\n"));
  EXPECT_THAT(ToYaml(config), HasSubstr("    betas: [0.9, 0.999]\n"));
  EXPECT_THAT(ToYaml(config), HasSubstr("  mode: sync\n"));
}

TEST_F(ToYamlTest, NumbersKeepEveryBit) {
  ASSERT_OK_AND_ASSIGN(v1::RunConfig config, LoadRunConfig({}, {}));
  config.mutable_actor()->mutable_optim()->set_lr(0.1 + 0.2);
  config.mutable_actor()->mutable_optim()->set_eps(5e-324);
  config.mutable_actor()->mutable_optim()->set_grad_clip(1.7976931348623157e308);
  config.mutable_rollout()->set_temperature(1.0 / 3);
  config.mutable_rollout()->set_top_p(0.9999999999999999);
  config.set_seed(18446744073709551615u);
  ExpectRoundTrip(config);
}

TEST_F(ToYamlTest, AnyTextRoundTrips) {
  ASSERT_OK_AND_ASSIGN(v1::RunConfig config, LoadRunConfig({}, {}));
  config.mutable_data()->set_chat_template(true);
  config.mutable_data()->set_system_prompt(
      "two\nlines\twith \"quotes\", \\ and 'more' # no comment\r\x01\x7f");
  config.mutable_data()->set_prompt_prefix("null");
  config.mutable_data()->set_prompt_suffix(" - 漢字 é \xf0\x9f\x98\x80: {x} [y] \xe2\x80\xa8 ");
  config.mutable_data()->add_train_files("1e5");
  config.mutable_data()->add_train_files("yes, [no]");
  config.mutable_model()->set_path("~");
  config.mutable_rollout()->add_stop("\n");
  config.mutable_rollout()->add_stop_token_ids(7);
  ExpectRoundTrip(config);
}

TEST_F(ToYamlTest, AListOfSectionsRoundTrips) {
  ASSERT_OK_AND_ASSIGN(v1::RunConfig config, LoadRunConfig({}, {}));
  v1::WeightedReward* file = config.mutable_reward()->add_rewards();
  file->set_path("my \"reward\", {1}.py");
  file->set_weight(0.1);
  v1::WeightedReward* judge = config.mutable_reward()->add_rewards();
  judge->set_name("judge");
  judge->mutable_judge()->set_url("http://127.0.0.1:1/v1");
  judge->mutable_judge()->set_model("m: {x}");
  judge->mutable_judge()->set_temperature(0);
  config.mutable_reward()->add_rewards()->set_name("gsm8k");
  ExpectRoundTrip(config);
  EXPECT_THAT(ToYaml(config), HasSubstr(", {name: \"gsm8k\"}]\n"));
}

TEST_F(ToYamlTest, EveryEnumValueRoundTrips) {
  ASSERT_OK_AND_ASSIGN(v1::RunConfig config, LoadRunConfig({}, {}));
  for (int mode = 1; mode <= v1::LossAggMode_MAX; ++mode) {
    config.mutable_actor()->set_loss_agg_mode(static_cast<v1::LossAggMode>(mode));
    config.mutable_actor()->set_kl_loss_type(
        static_cast<v1::KlLossType>(1 + mode % v1::KlLossType_MAX));
    ExpectRoundTrip(config);
  }
}

TEST(Summary, SaysWhatTheBatchAmountsTo) {
  v1::RunConfig config = DefaultRunConfig();
  config.mutable_actor()->set_ppo_mini_batch_size(8);
  EXPECT_EQ(DescribeBatch(config), "32 prompts x 8 samples = 256 samples = 4 optimizer steps");
  config.mutable_actor()->set_ppo_mini_batch_size(0);
  EXPECT_EQ(DescribeBatch(config), "32 prompts x 8 samples = 256 samples = 1 optimizer step");
  config.mutable_actor()->set_ppo_epochs(3);
  EXPECT_EQ(ComputeBatch(config).optimizer_steps, 3);
}

}  // namespace
}  // namespace tandem::config
