// Runs over mutual TLS and with tokens: they train as plain ones do, also while strangers knock at
// every port, and nothing secret is left behind.
#include "tests/support/secure_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/store_wire.h"
#include "common/host/file_descriptor.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "tandem/rollout/v1/rollout_service.grpc.pb.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"
#include "tests/support/addition_data.h"
#include "tests/support/certificates.h"
#include "tests/support/hostile_clients.h"
#include "tests/support/listening_ports.h"
#include "tests/support/program.h"
#include "tests/support/run_processes.h"

namespace tandem {
namespace {

using security::Role;
using ::tandem::testing::BinaryPath;
using ::tandem::testing::Certificates;
using ::tandem::testing::ConnectTo;
using ::tandem::testing::Environment;
using ::tandem::testing::Eventually;
using ::tandem::testing::IdleClients;
using ::tandem::testing::JsonLines;
using ::tandem::testing::kTokenWord;
using ::tandem::testing::ListeningPorts;
using ::tandem::testing::ProcessesOf;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::QuietSamples;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::Repeatable;
using ::tandem::testing::RoleUri;
using ::tandem::testing::RunProgram;
using ::tandem::testing::Samples;
using ::tandem::testing::SendAGigabyte;
using ::tandem::testing::ServicesOf;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::tandem::testing::TinyRun;
using ::tandem::testing::Tokens;
using ::tandem::testing::With;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

void ExpectNoSecretsIn(const std::string& folder, const std::string& output) {
  EXPECT_THAT(output, AllOf(Not(HasSubstr(kTokenWord)), Not(HasSubstr("PRIVATE KEY"))));
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ++num_files;
    EXPECT_THAT(ReadWhole(entry.path()),
                AllOf(Not(HasSubstr(kTokenWord)), Not(HasSubstr("PRIVATE KEY"))))
        << entry.path();
  }
  EXPECT_GT(num_files, 5);
}

class SecureRunTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SecureRunTest, TrainsAndLeavesNoSecretBehind) {
  const TempFolder folder, secrets;
  const TestAuthority authority(secrets, "ca");
  std::map<std::string, std::string> variables;
  if (GetParam() != std::string("tokens")) variables = Certificates(secrets, authority);
  if (GetParam() != std::string("certificates")) variables.merge(Tokens(secrets));
  const Environment environment(variables);

  const ProgramResult result = RunProgram("tandem", With(TinyRun(folder, "train"), {"--trace"}));

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(JsonLines(result.out)[0]["steps"], 3);
  const auto metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  EXPECT_EQ(metrics.back()["training/policy_version"], 3);
  const ProgramResult plan = RunProgram("tandem", With(TinyRun(folder, "train"), {"--dry-run"}));
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  ExpectNoSecretsIn(folder / "run", result.out + result.err + plan.out + plan.err);
}

INSTANTIATE_TEST_SUITE_P(By, SecureRunTest, ::testing::Values("certificates", "tokens", "both"));

TEST(SecureRun, RanksWithCertificatesWantASecret) {
  const TempFolder folder;
  const TestAuthority authority(folder, "ca");
  const std::string config = folder.Write("run.yaml",
                                          "model: {path: /models/none}\ntrainer: {ranks: 2}\n"
                                          "rollout: {tensor_model_parallel_size: 2}\n");
  std::map<std::string, std::string> variables = Certificates(folder, authority);
  variables.merge(std::map<std::string, std::string>{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  const Environment environment(variables);
  for (const char* program : {"tandem-trainer", "tandem-rollout"}) {
    const ProgramResult result =
        RunProgram(program, {"--config", config, "--listen", "127.0.0.1:0"}, 60);
    EXPECT_EQ(result.exit_code, 2) << program << ": " << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("TANDEM_GROUP_SECRET"), HasSubstr("openssl rand -hex 32")));
  }
}

// Connects to a port and says what a member of the run might.
void Knock(int port, const std::string& bytes) {
  const host::FileDescriptor fd = ConnectTo(port);
  if (!fd.is_open()) return;
  send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const timeval limit{0, 20000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char answer[64];
  recv(fd.get(), answer, sizeof(answer), 0);
}

std::vector<std::string> WhatStrangersSay() {
  std::string store;  // opens the way for an update that nobody has begun
  comm::AppendInteger(store, comm::StoreQuery::kValidate);
  comm::AppendInteger(store, comm::kStoreMagic);
  std::string set = store;
  comm::AppendInteger(set, comm::StoreQuery::kSet);
  comm::AppendString(set, "/update/go");
  comm::AppendString(set, "go");
  std::string proof = store;
  comm::AppendInteger(proof, comm::StoreQuery::kChallenge);
  proof += std::string(32, 'n');
  comm::AppendInteger(proof, comm::StoreQuery::kProve);
  proof += std::string(32, 'p');
  return {set,
          proof,
          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
          std::string(36, '\x01'),
          std::string(1000, '\xff'),
          ""};
}

TEST(SecureRun, IsUnharmedByStrangersAtEveryPort) {
  // The same run twice, which gives the same bits; during the second, every port of its processes
  // is knocked at, several times over.
  constexpr int kNumSteps = 40;
  const std::vector<std::string> more = Repeatable(kNumSteps, 5);
  const std::vector<nlohmann::json> expected = QuietSamples(more, kNumSteps);
  const TempFolder folder, secrets;
  const TestAuthority authority(secrets, "ca");
  const Environment environment(Certificates(secrets, authority));
  std::future<ProgramResult> run = std::async(std::launch::async, [&] {
    return RunProgram("tandem", With(TinyRun(folder, "train"), more));
  });
  std::set<int> knocked;
  int num_knocks = 0;
  while (run.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    for (const pid_t pid : ServicesOf(folder.path())) {
      for (const int port : ListeningPorts(pid)) {
        knocked.insert(port);
        for (const std::string& bytes : WhatStrangersSay()) {
          Knock(port, bytes);
          ++num_knocks;
        }
      }
    }
  }
  const ProgramResult result = run.get();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(knocked.size(), 4u);  // two rollouts, the trainer, its rendezvous
  EXPECT_GT(num_knocks, 10);
  EXPECT_EQ(Samples(folder, kNumSteps), expected);
  const std::string log = ReadWhole(folder / "run/logs/trainer-0.log");
  EXPECT_THAT(log,
              AllOf(HasSubstr("unauthenticated connection refused"), HasSubstr("peer=127.0.0.1:")));
}

// Streams whose tokens nobody reads.
class UnreadStreams {
 public:
  UnreadStreams(int port, const std::string& authorization, int count)
      : stub_(rollout::v1::RolloutService::NewStub(grpc::CreateChannel(
            "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()))) {
    rollout::v1::GenerateRequest request;
    for (const int id : {3, 4, 5}) request.mutable_token_ids()->add_ids(id);
    request.set_stream(true);
    request.mutable_sampling()->set_n(16);
    request.mutable_sampling()->set_max_tokens(8);
    request.mutable_sampling()->set_ignore_eos(true);
    for (int i = 0; i < count; ++i) {
      contexts_.push_back(rpc::MakeContext(absl::Minutes(5)));
      contexts_.back()->AddMetadata("authorization", authorization);
      readers_.push_back(stub_->Generate(contexts_.back().get(), request));
    }
  }
  ~UnreadStreams() {
    for (size_t i = 0; i < readers_.size(); ++i) {
      contexts_[i]->TryCancel();
      readers_[i]->Finish();
    }
  }

 private:
  std::unique_ptr<rollout::v1::RolloutService::Stub> stub_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReader<rollout::v1::GenerateResponse>>> readers_;
};

TEST(SecureRun, IsUnharmedByAMemberWhoMeansHarm) {
  // As above; this time it is somebody who has the driver's token, beside crowds that have none.
  constexpr int kNumSteps = 400;
  const std::vector<std::string> more = Repeatable(kNumSteps, 6);
  const std::vector<nlohmann::json> expected = QuietSamples(more, kNumSteps);
  const TempFolder folder, secrets;
  const Environment environment(Tokens(secrets));
  const std::string driver = std::string("Bearer ") + kTokenWord + "-driver";
  std::future<ProgramResult> run = std::async(std::launch::async, [&] {
    return RunProgram("tandem", With(TinyRun(folder, "train"), more));
  });
  // Once the first step is done, everybody is up.
  ASSERT_TRUE(
      Eventually([&] { return std::filesystem::exists(folder / "run/rollouts/1.jsonl"); }, 120));
  std::vector<std::unique_ptr<IdleClients>> crowds;
  std::vector<std::unique_ptr<UnreadStreams>> unread;
  std::vector<std::future<absl::Status>> gigabytes;
  const auto harm = [&](const std::string& program, const std::string& method) {
    for (const pid_t pid : ProcessesOf(program, folder.path())) {
      for (const int port : ListeningPorts(pid)) {
        crowds.push_back(std::make_unique<IdleClients>(port, 500));
        EXPECT_EQ(crowds.back()->num_open(), 500);
        if (program == "tandem-rollout") {
          unread.push_back(std::make_unique<UnreadStreams>(port, driver, 8));
        }
        gigabytes.push_back(std::async(std::launch::async, [=] {
          return SendAGigabyte("127.0.0.1:" + std::to_string(port), method, driver);
        }));
      }
    }
  };
  harm("tandem-rollout", "/tandem.rollout.v1.RolloutService/Generate");
  harm("tandem-trainer", "/tandem.trainer.v1.TrainerService/GetModelInfo");
  for (auto& sent : gigabytes) {
    // Told so, or, where that takes long and at ports of other kinds, cut off.
    EXPECT_THAT(sent.get().code(),
                AnyOf(absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable));
  }
  EXPECT_EQ(run.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "the run was over before all harm was done";
  const ProgramResult result = run.get();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Samples(folder, kNumSteps), expected);
}

// A rollout that a test starts, over mutual TLS.
class SecureRolloutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string model = testing::WriteTinyModel(folder_);
    const std::string config = folder_.Write(
        "rollout.yaml", "model: {path: " + model + ", dtype: float32, random_init: true}\n");
    const Environment environment(Certificates(secrets_, authority_));
    runs_ = std::async(std::launch::async, [this, config] {
      return RunProgram("tandem-rollout", {"--config", config, "--listen", "127.0.0.1:0",
                                           "--ready-file", folder_ / "ready"});
    });
    ASSERT_TRUE(Eventually([&] { return !Address().empty(); }, 60));
  }
  void TearDown() override {
    for (const pid_t pid : ServicesOf(folder_.path())) kill(pid, SIGTERM);
    const ProgramResult end = runs_.get();
    EXPECT_EQ(end.exit_code, 0) << end.err;
  }
  std::string Address() const {
    std::string address = ReadWhole(folder_ / "ready");
    return address.substr(0, address.find('\n'));
  }
  // The flags stand behind the subcommand, as people write them.
  ProgramResult As(const std::string& certificate, const std::vector<std::string>& args,
                   const std::string& ca = "") const {
    return RunProgram("tandem",
                      With(args, {"--tls-cert", secrets_ / (certificate + ".crt"), "--tls-key",
                                  secrets_ / (certificate + ".key"), "--tls-ca",
                                  ca.empty() ? authority_.ca_path() : ca}),
                      60);
  }

  const TempFolder folder_, secrets_;
  const TestAuthority authority_{secrets_, "ca"};
  std::future<ProgramResult> runs_;
};

TEST_F(SecureRolloutTest, AnswersEachAsItsRoleAllows) {
  const std::vector<std::string> health = {"health", "--endpoint", Address()};
  const std::vector<std::string> status = {"status", "--rollout", Address()};
  const std::vector<std::string> pause = {"pause", "--rollout", Address()};
  EXPECT_EQ(As("driver", health).exit_code, 0);
  EXPECT_EQ(As("driver", status).exit_code, 0);
  // Somebody who has no certificate, or one of somewhere else, is not answered.
  EXPECT_EQ(RunProgram("tandem", health, 60).exit_code, 1);
  const TestAuthority elsewhere(secrets_, "elsewhere");
  elsewhere.Issue("foreign", {.uris = {RoleUri(Role::kDriver)}});
  EXPECT_EQ(As("foreign", health).exit_code, 1);
  // Who may only look, looks.
  EXPECT_EQ(As("observer", health).exit_code, 0);
  EXPECT_EQ(As("observer", status).exit_code, 0);
  const ProgramResult denied = As("observer", pause);
  EXPECT_EQ(denied.exit_code, 1);
  EXPECT_THAT(denied.err, AllOf(HasSubstr("/tandem.rollout.v1.RolloutService/Pause"),
                                HasSubstr("role driver"), HasSubstr("found observer")));
  EXPECT_EQ(As("driver", pause).exit_code, 0);
  EXPECT_EQ(As("driver", {"resume", "--rollout", Address()}).exit_code, 0);
  // Misuse is told before anything is sent.
  const ProgramResult wrong = As("trainer", status);
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("roles found: trainer"));
}

TEST_F(SecureRolloutTest, AnObserverNeitherKeepsNorEndsARunsHold) {
  constexpr int64_t kIncarnation = 5;
  const auto channel_of = [&](Role role) {
    return rpc::MakeChannel(Address(), {.security = authority_.Security(role)});
  };
  const auto weights = rollout::v1::WeightService::NewStub(channel_of(Role::kTrainer));
  rollout::v1::GetManifestResponse held;
  ASSERT_TRUE(weights->GetManifest(rpc::MakeContext(absl::Seconds(30)).get(), {}, &held).ok());
  rollout::v1::BeginUpdateRequest begin;
  begin.set_request_id("q");
  begin.set_incarnation(kIncarnation);
  begin.set_update_id("u");
  begin.set_policy_version(1);
  begin.set_manifest_digest(held.manifest().digest());
  begin.mutable_rendezvous()->set_backend("gloo");
  begin.mutable_rendezvous()->set_host("127.0.0.1");
  begin.mutable_rendezvous()->set_port(1);
  begin.mutable_rendezvous()->set_rank(1);
  begin.mutable_rendezvous()->set_size(2);
  begin.mutable_timeout()->set_seconds(30);
  begin.set_transport(common::v1::TRANSPORT_BROADCAST);
  begin.mutable_owner()->set_run_id("first");
  begin.mutable_owner()->mutable_hold()->set_seconds(3600);
  rpc::SetDigest(begin);
  rollout::v1::BeginUpdateResponse begun;
  const grpc::Status status =
      weights->BeginUpdate(rpc::MakeContext(absl::Seconds(30)).get(), begin, &begun);
  ASSERT_TRUE(status.ok()) << status.error_message();

  rollout::v1::GetServerInfoRequest end;
  end.set_incarnation(kIncarnation);
  end.set_ended_run_id("first");
  const auto holds_after = [&](Role role) {
    const auto stub = rollout::v1::RolloutService::NewStub(channel_of(role));
    rollout::v1::GetServerInfoResponse info;
    const grpc::Status answer =
        stub->GetServerInfo(rpc::MakeContext(absl::Seconds(30)).get(), end, &info);
    EXPECT_TRUE(answer.ok()) << answer.error_message();
    EXPECT_EQ(info.owner().run_id(), "first");
    return info.owner().has_hold();
  };
  EXPECT_TRUE(holds_after(Role::kObserver));
  EXPECT_FALSE(holds_after(Role::kDriver));
}

TEST(SecureService, RefusesToServeOthersInPlaintext) {
  const TempFolder folder;
  const std::string model = testing::WriteTinyModel(folder);
  const std::string config = folder.Write(
      "rollout.yaml", "model: {path: " + model + ", dtype: float32, random_init: true}\n");
  const ProgramResult result =
      RunProgram("tandem-rollout", {"--config", config, "--listen", "0.0.0.0:0"}, 60);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("--tls-cert"),
                                HasSubstr("--insecure-plaintext")));
}

}  // namespace
}  // namespace tandem
