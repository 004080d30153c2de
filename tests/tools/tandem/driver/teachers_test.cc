// Teachers that the test serves: what they are asked, and what becomes of their answers.
#include "tools/tandem/driver/teachers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/synchronization/mutex.h"
#include "common/config/load.h"
#include "common/rpc/server.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace v1 = rollout::v1;

// The log-prob of token id t is -t; the likeliest tokens are 0, 1, ... of log-prob -1, -2, ...
class FakeTeacher final : public v1::RolloutService::Service {
 public:
  FakeTeacher() {
    auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .role = "rollout"}, {this});
    EXPECT_OK(server.status());
    server_ = *std::move(server);
  }

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    response->set_vocab_size(15);
    response->set_max_model_len(64);
    absl::MutexLock lock(&mu_);
    response->set_architecture(architecture_);
    return grpc::Status::OK;
  }

  grpc::Status Score(grpc::ServerContext*, const v1::ScoreRequest* request,
                     v1::ScoreResponse* response) override {
    const auto first = static_cast<int>(std::max<int64_t>(1, request->first_scored_token()));
    for (int i = first; i < request->token_ids_size(); ++i) {
      response->add_logprobs(-static_cast<float>(request->token_ids(i)));
      for (int k = 0; k < request->num_top_logprobs(); ++k) {
        response->add_top_token_ids(static_cast<uint32_t>(k));
        response->add_top_logprobs(-1.0f - static_cast<float>(k));
      }
    }
    absl::MutexLock lock(&mu_);
    requests_.push_back(*request);
    return answer_ ? answer_(static_cast<int>(requests_.size()), *response) : grpc::Status::OK;
  }

  // Changes the answers from now on; `number` counts them from 1.
  void Answer(std::function<grpc::Status(int number, v1::ScoreResponse&)> answer) {
    absl::MutexLock lock(&mu_);
    answer_ = std::move(answer);
  }
  void ServeArchitecture(const std::string& architecture) {
    absl::MutexLock lock(&mu_);
    architecture_ = architecture;
  }
  std::vector<v1::ScoreRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }
  const std::string& address() const { return server_->address(); }

 private:
  absl::Mutex mu_;
  std::string architecture_ ABSL_GUARDED_BY(mu_) = "LlamaForCausalLM";
  std::vector<v1::ScoreRequest> requests_ ABSL_GUARDED_BY(mu_);
  std::function<grpc::Status(int, v1::ScoreResponse&)> answer_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<rpc::Server> server_;
};

// A completion of the given tokens in one turn.
Completion OfOneTurn(std::vector<uint32_t> ids) {
  Completion out;
  out.processed_logprobs.assign(ids.size(), -1.0f);
  out.token_ids = std::move(ids);
  return out;
}

Group OneGroup(const std::string& data_source = "") {
  Group group;
  group.prompt.token_ids = {7, 8};
  if (!data_source.empty()) group.prompt.fields = {{"data_source", data_source}};
  group.completions = {OfOneTurn({3, 0}), OfOneTurn({5})};
  return group;
}

class TeachersTest : public ::testing::Test {
 protected:
  TeachersTest() {
    config_.mutable_teacher()->set_endpoint(teacher_.address());
    config_.mutable_rollout()->set_temperature(0.5);
    config_.set_run_dir(folder_ / "run");
  }

  absl::StatusOr<std::unique_ptr<Teachers>> Connected() {
    auto teachers = Teachers::Create(config_, {.vocab_size = 15});
    if (!teachers.ok()) return teachers.status();
    const absl::Status connected =
        (*teachers)->Connect({.longest_sequence = 64, .timeout = absl::Seconds(30)});
    if (!connected.ok()) return connected;
    return teachers;
  }

  // Scores one group with the configuration's teacher.
  absl::Status ScoreOne() {
    auto teachers = Connected();
    if (!teachers.ok()) return teachers.status();
    groups_ = {OneGroup()};
    return (*teachers)->Score(groups_);
  }

  const TempFolder folder_;
  FakeTeacher teacher_;
  config::v1::RunConfig config_ = config::DefaultRunConfig();
  std::vector<Group> groups_;
};

TEST_F(TeachersTest, ScoresPromptAndCompletionAtTheSamplingTemperature) {
  ASSERT_OK(ScoreOne());
  EXPECT_THAT(groups_[0].completions[0].teacher_logprobs, ElementsAre(-3, 0));
  EXPECT_THAT(groups_[0].completions[1].teacher_logprobs, ElementsAre(-5));
  const std::vector<v1::ScoreRequest> requests = teacher_.requests();
  ASSERT_EQ(requests.size(), 2u);
  for (const v1::ScoreRequest& request : requests) {
    EXPECT_EQ(request.temperature(), 0.5);
    EXPECT_EQ(request.num_top_logprobs(), 0);
    EXPECT_EQ(request.token_ids(0), 7u);
    EXPECT_EQ(request.first_scored_token(), 2);  // the prompt is context
    EXPECT_EQ(request.token_ids_size(), request.token_ids(2) == 3 ? 4 : 3);
  }
}

TEST_F(TeachersTest, GivesSampledTokensTheLikeliestTokensInTheirPlaces) {
  config_.mutable_teacher()->set_top_k(2);
  config_.mutable_teacher()->set_mode(config::v1::DISTILLATION_MODE_LOSS);
  ASSERT_OK(ScoreOne());
  EXPECT_THAT(groups_[0].completions[0].teacher_logprobs, ElementsAre(-3, 0));
  EXPECT_THAT(groups_[0].completions[0].teacher_top_ids, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(groups_[0].completions[0].teacher_top_logprobs, ElementsAre(-1, -2, -1, -2));
  EXPECT_THAT(groups_[0].completions[1].teacher_top_ids, ElementsAre(0, 1));
  for (const v1::ScoreRequest& request : teacher_.requests()) {
    EXPECT_EQ(request.num_top_logprobs(), 2);
  }
}

TEST_F(TeachersTest, RefusesSequencesWhoseLikeliestTokensDoNotFitInAnAnswer) {
  config_.mutable_teacher()->set_top_k(10);
  config_.mutable_teacher()->set_mode(config::v1::DISTILLATION_MODE_LOSS);
  ASSERT_OK_AND_ASSIGN(const auto teachers, Teachers::Create(config_, {.vocab_size = 15}));
  EXPECT_THAT(teachers->Connect({.longest_sequence = 150001, .timeout = absl::Seconds(30)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the run's longest sequence: 150001 tokens with teacher.top_k 10 "
                                 "need 1500010 ids")));
}

TEST_F(TeachersTest, ScoresEverySequenceOfAnEpisodeWhole) {
  Completion episode = OfOneTurn({4, 0, 9, 5, 1, 2, 6});
  episode.segments = {{common::v1::SEGMENT_KIND_SAMPLED, 2, 0},
                      {common::v1::SEGMENT_KIND_ENVIRONMENT, 1, 0},
                      {common::v1::SEGMENT_KIND_SAMPLED, 1, 0},
                      {common::v1::SEGMENT_KIND_PROMPT, 2, 0},
                      {common::v1::SEGMENT_KIND_SAMPLED, 1, 0}};
  std::vector<Group> groups = {OneGroup()};
  groups[0].completions = {episode};
  ASSERT_OK_AND_ASSIGN(const auto teachers, Connected());

  ASSERT_OK(teachers->Score(groups));

  EXPECT_THAT(groups[0].completions[0].teacher_logprobs, ElementsAre(-4, 0, 0, -5, 0, 0, -6));
  std::vector<std::pair<int, int64_t>> lengths;  // of the sequence and of its prompt
  for (const v1::ScoreRequest& request : teacher_.requests()) {
    lengths.emplace_back(request.token_ids_size(), request.first_scored_token());
  }
  EXPECT_THAT(lengths, ::testing::UnorderedElementsAre(std::pair(6, 2), std::pair(3, 2)));
  EXPECT_GT(teachers->TakeSeconds(), 0);
  EXPECT_EQ(teachers->TakeSeconds(), 0);
}

TEST_F(TeachersTest, ScoresAnEpisodeThatBeginsWithItsOwnPrompt) {
  Completion episode = OfOneTurn({4, 0, 9, 5, 1, 2, 6});
  episode.segments = {{common::v1::SEGMENT_KIND_PROMPT, 2, 0},
                      {common::v1::SEGMENT_KIND_SAMPLED, 2, 0},
                      {common::v1::SEGMENT_KIND_PROMPT, 2, 0},
                      {common::v1::SEGMENT_KIND_SAMPLED, 1, 0}};
  std::vector<Group> groups = {OneGroup()};
  groups[0].completions = {episode};
  ASSERT_OK_AND_ASSIGN(const auto teachers, Connected());

  ASSERT_OK(teachers->Score(groups));

  EXPECT_THAT(groups[0].completions[0].teacher_logprobs, ElementsAre(0, 0, -9, -5, 0, 0, -6));
}

TEST_F(TeachersTest, RepeatsCallsWhileATeacherIsDown) {
  teacher_.Answer([](int number, v1::ScoreResponse&) {
    return number <= 4 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarts") : grpc::Status::OK;
  });
  ASSERT_OK(ScoreOne());
  EXPECT_THAT(groups_[0].completions[0].teacher_logprobs, ElementsAre(-3, 0));
  EXPECT_THAT(groups_[0].completions[1].teacher_logprobs, ElementsAre(-5));
}

TEST_F(TeachersTest, ATeacherThatStaysDownIsAnErrorWithItsReason) {
  config_.mutable_teacher()->set_timeout_s(1);
  teacher_.Answer([](int, v1::ScoreResponse&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "its weights are gone");
  });
  EXPECT_THAT(ScoreOne(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("row 1 of the data set"), HasSubstr(teacher_.address()),
                             HasSubstr("teacher.timeout_s"), HasSubstr("its weights are gone"))));
  EXPECT_THAT(groups_[0].completions[0].teacher_logprobs, IsEmpty());
}

TEST_F(TeachersTest, AnErrorOfTheRequestIsNotRepeated) {
  teacher_.Answer([](int, v1::ScoreResponse&) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "too long");
  });
  EXPECT_THAT(ScoreOne(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too long")));
  EXPECT_LE(teacher_.requests().size(), 2u);
}

TEST_F(TeachersTest, NothingTrainsOnABrokenAnswer) {
  teacher_.Answer([](int, v1::ScoreResponse& response) {
    response.set_logprobs(0, std::numeric_limits<float>::quiet_NaN());
    return grpc::Status::OK;
  });
  EXPECT_THAT(ScoreOne(), StatusIs(absl::StatusCode::kInternal, HasSubstr("logprobs[0]")));
  teacher_.Answer([](int, v1::ScoreResponse& response) {
    response.mutable_logprobs()->RemoveLast();
    return grpc::Status::OK;
  });
  EXPECT_THAT(ScoreOne(), StatusIs(absl::StatusCode::kInternal, HasSubstr("logprobs, found")));
}

TEST_F(TeachersTest, AnInterruptEndsTheWait) {
  teacher_.Answer([](int, v1::ScoreResponse&) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "restarts");
  });
  auto teachers = Teachers::Create(config_, {.vocab_size = 15});
  ASSERT_OK(teachers.status());
  bool is_interrupted = false;
  ASSERT_OK((*teachers)->Connect(
      {.longest_sequence = 64, .interrupted = [&is_interrupted] { return is_interrupted; }}));
  is_interrupted = true;
  std::vector<Group> groups = {OneGroup()};
  EXPECT_THAT((*teachers)->Score(groups),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

TEST_F(TeachersTest, EachDataSourceHasItsTeacher) {
  FakeTeacher code;
  code.Answer([](int, v1::ScoreResponse& response) {
    for (float& value : *response.mutable_logprobs()) value -= 100;
    return grpc::Status::OK;
  });
  config_.mutable_teacher()->clear_endpoint();
  for (const auto& [source, address] :
       {std::pair("math", teacher_.address()), {"code", code.address()}}) {
    config::v1::SourceTeacher& added = *config_.mutable_teacher()->add_teachers();
    added.set_data_source(source);
    added.set_endpoint(address);
  }
  ASSERT_OK_AND_ASSIGN(const auto teachers, Connected());

  std::vector<Group> groups = {OneGroup("code"), OneGroup("math")};
  ASSERT_OK(teachers->Score(groups));
  EXPECT_THAT(groups[0].completions[1].teacher_logprobs, ElementsAre(-105));
  EXPECT_THAT(groups[1].completions[1].teacher_logprobs, ElementsAre(-5));

  const auto source = [&](const std::string& rows) {
    return PromptSource::Load({folder_.Write("rows.jsonl", rows)}, config_.data(), nullptr, 0);
  };
  const std::string math = R"({"prompt": [1], "answer": "a", "data_source": "math"})";
  ASSERT_OK_AND_ASSIGN(const PromptSource good, source(math + "\n"));
  EXPECT_OK(teachers->CheckRows(good));
  ASSERT_OK_AND_ASSIGN(
      const PromptSource other,
      source(math + "\n" + R"({"prompt": [1], "answer": "a", "data_source": "art"})" + "\n"));
  EXPECT_THAT(teachers->CheckRows(other),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("row 2"), HasSubstr("data_source art has no teacher"))));
  ASSERT_OK_AND_ASSIGN(const PromptSource none, source(R"({"prompt": [1], "answer": "a"})"
                                                       "\n"));
  EXPECT_THAT(teachers->CheckRows(none),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a data_source")));
}

TEST_F(TeachersTest, GivesSampledTokensOfGivenSequencesTheLikeliestTokens) {
  config_.mutable_teacher()->set_top_k(2);
  ASSERT_OK_AND_ASSIGN(const auto teachers, Connected());
  std::vector<common::v1::Sample> samples(2);
  const auto add = [](common::v1::Sample& sample, common::v1::SegmentKind kind,
                      std::vector<uint32_t> ids) {
    common::v1::Segment& segment = *sample.add_segments();
    segment.set_kind(kind);
    segment.mutable_token_ids()->Add(ids.begin(), ids.end());
  };
  add(samples[0], common::v1::SEGMENT_KIND_PROMPT, {1, 2});
  add(samples[0], common::v1::SEGMENT_KIND_SAMPLED, {3, 0});
  add(samples[1], common::v1::SEGMENT_KIND_SAMPLED, {4, 5});
  const Prompt prompt;

  ASSERT_OK(teachers->ScoreTop({&prompt, &prompt}, samples));

  EXPECT_THAT(samples[0].segments(0).teacher_top_ids(), IsEmpty());
  EXPECT_THAT(samples[0].segments(1).teacher_top_ids(), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(samples[0].segments(1).teacher_top_logprobs(), ElementsAre(-1, -2, -1, -2));
  // Nothing predicts the first token of a sequence.
  EXPECT_THAT(samples[1].segments(0).teacher_top_ids(), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(samples[1].segments(0).teacher_top_logprobs(), ElementsAre(0, 0, -1, -2));
  EXPECT_EQ(teacher_.requests().at(0).temperature(), 1.0);
}

TEST_F(TeachersTest, RefusesATeacherOfAnotherVocabularyOrOfShorterSequences) {
  const auto start = [this](int64_t vocab_size, int64_t longest) {
    auto teachers = Teachers::Create(config_, {.vocab_size = vocab_size});
    EXPECT_OK(teachers.status());
    return (*teachers)->Connect({.longest_sequence = longest, .timeout = absl::Seconds(30)});
  };
  EXPECT_THAT(start(16, 64),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("teacher.endpoint: expected a model with the policy's "
                                       "vocabulary of 16 tokens, found 15"),
                             HasSubstr(teacher_.address()))));
  EXPECT_THAT(start(15, 65), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr("65 tokens"), HasSubstr("takes 64"))));
  EXPECT_OK(start(15, 64));
  teacher_.ServeArchitecture("LlamaForSequenceClassification");
  EXPECT_THAT(start(15, 64),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a language model")));
}

TEST_F(TeachersTest, RefusesAFolderOfAnotherVocabularyBeforeAnythingStarts) {
  const std::string folder = testing::WriteTinyModel(folder_);
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizerIfAny(folder));
  config_.mutable_teacher()->clear_endpoint();
  config_.mutable_teacher()->set_path(folder);
  const auto create = [&](int64_t vocab_size) {
    return Teachers::Create(config_, {.vocab_size = vocab_size, .tokenizer = tokenizer.get()})
        .status();
  };
  EXPECT_OK(create(15));
  EXPECT_THAT(create(17), StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("teacher.path: "), HasSubstr("of 17 tokens"),
                                         HasSubstr("found 15"))));
  config_.mutable_teacher()->set_top_k(16);
  EXPECT_THAT(create(15),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("teacher.top_k: expected at "
                                                                     "most the vocabulary's 15")));
  config_.mutable_teacher()->set_top_k(0);

  // As many tokens, two of them exchanged.
  const TempFolder other;
  const std::string exchanged = testing::WriteTinyModel(other);
  const std::string path = exchanged + "/tokenizer.json";
  nlohmann::json json = nlohmann::json::parse(std::ifstream(path));
  std::swap(json["model"]["vocab"]["+"], json["model"]["vocab"]["="]);
  std::ofstream(path) << json.dump();
  config_.mutable_teacher()->set_path(exchanged);
  EXPECT_THAT(create(15),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("token 12 is \"=\" there and \"+\" for the policy"),
                             HasSubstr("teacher.path"))));

  config_.mutable_teacher()->set_path(folder_ / "nowhere");
  EXPECT_THAT(create(15).message(), HasSubstr("teacher.path"));
}

TEST_F(TeachersTest, AFolderIsServedByARolloutThatMayMove) {
  config_.mutable_teacher()->clear_endpoint();
  config_.mutable_teacher()->set_path(testing::WriteTinyModel(folder_));
  ASSERT_OK_AND_ASSIGN(const auto teachers, Teachers::Create(config_, {.vocab_size = 15}));
  const std::vector<ServedFolder> served = teachers->served_folders();
  ASSERT_EQ(served.size(), 1u);
  EXPECT_EQ(served[0].name, "teacher-0");
  EXPECT_EQ(served[0].key, "teacher");
  EXPECT_EQ(served[0].path, config_.teacher().path());
  FakeTeacher moved;
  std::string address = teacher_.address();
  ASSERT_OK(teachers->Connect({.address_of =
                                   [&address](const std::string& name) {
                                     EXPECT_EQ(name, "teacher-0");
                                     return address;
                                   },
                               .longest_sequence = 64}));
  teacher_.Answer(
      [](int, v1::ScoreResponse&) { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stops"); });
  address = moved.address();

  std::vector<Group> groups = {OneGroup()};
  ASSERT_OK(teachers->Score(groups));

  EXPECT_THAT(groups[0].completions[1].teacher_logprobs, ElementsAre(-5));
  EXPECT_EQ(moved.requests().size(), 2u);
}

TEST(NoTeachers, AreNone) {
  ASSERT_OK_AND_ASSIGN(const auto teachers,
                       Teachers::Create(config::DefaultRunConfig(), {.vocab_size = 15}));
  EXPECT_EQ(teachers, nullptr);
}

}  // namespace
}  // namespace tandem::driver
