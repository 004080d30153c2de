// Mutual TLS, roles and tokens between a server and a channel: who is let in, who is not, and what
// they are told.
#include "common/rpc/transport_security.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "common/telemetry/log.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using security::Role;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::RoleUri;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kTimeout = absl::Seconds(30);
constexpr char kMethod[] = "/tandem.reward.v1.RewardService/ComputeRewards";
constexpr char kDriverToken[] = "driver-0123456789abcdef";
constexpr char kObserverToken[] = "observer-0123456789abcdef";

class RewardService final : public reward::v1::RewardService::Service {
 public:
  grpc::Status ComputeRewards(grpc::ServerContext*, const reward::v1::ComputeRewardsRequest*,
                              reward::v1::ComputeRewardsResponse* response) override {
    ++num_calls_;
    if (held_) may_answer_.WaitForNotificationWithTimeout(kTimeout);
    response->add_rewards(1);
    return grpc::Status::OK;
  }
  std::atomic<int> num_calls_{0};
  std::atomic<bool> held_{false};
  absl::Notification may_answer_;
};

absl::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                  absl::Duration timeout = kTimeout) {
  const auto stub = reward::v1::RewardService::NewStub(channel);
  reward::v1::ComputeRewardsResponse response;
  const auto context = MakeContext(timeout);
  return FromGrpcStatus(stub->ComputeRewards(context.get(), {}, &response));
}

std::shared_ptr<const TransportSecurity> Make(const SecurityOptions& options, Role role) {
  auto security = TransportSecurity::Create(options, role);
  EXPECT_OK(security.status());
  return security.ok() ? *security : nullptr;
}

// A channel of its own: no connection of another one is used.
std::shared_ptr<grpc::Channel> ChannelOf(const std::string& address,
                                         std::shared_ptr<const TransportSecurity> security) {
  return MakeChannel(address, {.retry = false, .security = std::move(security)});
}

class TransportSecurityTest : public ::testing::Test {
 protected:
  std::unique_ptr<Server> StartServer(std::shared_ptr<const TransportSecurity> security) {
    auto server = Server::Start({.role = "reward", .security = std::move(security)}, {&service_});
    EXPECT_OK(server.status());
    return std::move(server).value();
  }
  absl::Status CallAs(const Server& server, std::shared_ptr<const TransportSecurity> security,
                      absl::Duration timeout = kTimeout) {
    return Call(ChannelOf(server.address(), std::move(security)), timeout);
  }

  RewardService service_;
  const TempFolder folder_;
  const TestAuthority authority_{folder_, "ca"};
};

TEST_F(TransportSecurityTest, ADriverCallsAndHealthAnswersEveryRole) {
  const auto server = StartServer(authority_.Security(Role::kReward));
  EXPECT_OK(CallAs(*server, authority_.Security(Role::kDriver)));
  EXPECT_EQ(service_.num_calls_, 1);
  for (const Role role : security::kAllRoles) {
    EXPECT_THAT(IsServing(ChannelOf(server->address(), authority_.Security(role)), "", kTimeout),
                IsOkAndHolds(true));
  }
}

TEST_F(TransportSecurityTest, AnotherRoleIsDeniedByName) {
  const auto server = StartServer(authority_.Security(Role::kReward));
  for (const Role role : {Role::kObserver, Role::kTrainer, Role::kRollout}) {
    EXPECT_THAT(CallAs(*server, authority_.Security(role)),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         AllOf(HasSubstr(kMethod), HasSubstr("driver"),
                               HasSubstr(absl::StrCat("found ", security::RoleName(role))))));
  }
  EXPECT_EQ(service_.num_calls_, 0);
  bool counted = false;
  for (const auto& family : server->metrics()->Collect()) {
    if (family.name == "tandem_rpc_refused_total") {
      ASSERT_EQ(family.metric.size(), 1u);
      counted = family.metric[0].counter.value == 3;
    }
  }
  EXPECT_TRUE(counted);
}

TEST_F(TransportSecurityTest, WithoutAGoodCertificateThereIsNoConnection) {
  const auto server = StartServer(authority_.Security(Role::kReward));
  const TestAuthority stranger(folder_, "other");
  // Plaintext; one of another authority, which trusts ours; one that has expired.
  EXPECT_THAT(CallAs(*server, Make({}, Role::kDriver)),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  SecurityOptions foreign = stranger.Issue(Role::kDriver);
  foreign.tls_ca = authority_.ca_path();
  EXPECT_THAT(CallAs(*server, Make(foreign, Role::kDriver)),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  const SecurityOptions short_lived =
      authority_.Issue("short", {.uris = {RoleUri(Role::kDriver)}, .valid_for = absl::Seconds(2)});
  const auto expiring = Make(short_lived, Role::kDriver);
  absl::SleepFor(absl::Seconds(3));
  EXPECT_THAT(CallAs(*server, expiring), StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_EQ(service_.num_calls_, 0);
  EXPECT_OK(CallAs(*server, authority_.Security(Role::kDriver)));
}

TEST_F(TransportSecurityTest, AServerOfAnotherAuthorityOrRoleIsNotSpokenTo) {
  const TestAuthority stranger(folder_, "other");
  const auto foreign = StartServer(stranger.Security(Role::kReward));
  EXPECT_THAT(CallAs(*foreign, authority_.Security(Role::kDriver)),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  // Whoever has some certificate of the authority cannot pose as the reward service.
  const auto impostor = StartServer(authority_.Security(Role::kRollout));
  const absl::Status status = CallAs(*impostor, authority_.Security(Role::kDriver));
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(kMethod), HasSubstr("found rollout")));
  EXPECT_EQ(service_.num_calls_, 0);
}

TEST_F(TransportSecurityTest, ATokenTakesTheRoleOfItsLine) {
  SecurityOptions options = authority_.Issue(Role::kReward);
  options.tokens = folder_.Write(
      "tokens", absl::StrCat("driver ", kDriverToken, "\nobserver ", kObserverToken, "\n"));
  const auto server = StartServer(Make(options, Role::kReward));
  SecurityOptions client = authority_.Issue(Role::kObserver);
  client.token = kDriverToken;  // speaks for itself, beside the certificate of an observer
  EXPECT_OK(CallAs(*server, Make(client, Role::kObserver)));
  client.token = kObserverToken;
  EXPECT_THAT(CallAs(*server, Make(client, Role::kObserver)),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("found observer")));
  client.token = "driver-0123456789abcdeX";
  EXPECT_THAT(CallAs(*server, Make(client, Role::kObserver)),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("--tokens"), Not(HasSubstr("0123456789")))));
  // Certificates do as before.
  EXPECT_OK(CallAs(*server, authority_.Security(Role::kDriver)));
}

TEST_F(TransportSecurityTest, ATokenIsEnoughWithoutACertificateOfOnesOwn) {
  SecurityOptions options = authority_.Issue(Role::kReward);
  options.tokens = folder_.Write("tokens", absl::StrCat("driver ", kDriverToken));
  const auto server = StartServer(Make(options, Role::kReward));
  // As clients in other languages do; the certificate has no host name, so what they check is
  // given.
  const auto call = [&](const std::string& authorization) {
    grpc::experimental::TlsChannelCredentialsOptions tls;
    tls.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(authority_.ca_pem()));
    tls.watch_root_certs();
    tls.set_verify_server_certs(true);
    tls.set_check_call_host(false);
    class Any final : public grpc::experimental::ExternalCertificateVerifier {
     public:
      bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest*,
                  std::function<void(grpc::Status)>, grpc::Status* status) override {
        *status = grpc::Status::OK;
        return true;
      }
      void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest*) override {}
    };
    tls.set_certificate_verifier(grpc::experimental::ExternalCertificateVerifier::Create<Any>());
    const auto channel =
        grpc::CreateChannel(server->address(), grpc::experimental::TlsCredentials(tls));
    const auto stub = reward::v1::RewardService::NewStub(channel);
    const auto context = MakeContext(kTimeout);
    if (!authorization.empty()) context->AddMetadata("authorization", authorization);
    reward::v1::ComputeRewardsResponse response;
    return FromGrpcStatus(stub->ComputeRewards(context.get(), {}, &response));
  };
  EXPECT_OK(call(absl::StrCat("Bearer ", kDriverToken)));
  EXPECT_THAT(call(""), StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("--token-file")));
  EXPECT_THAT(call(kDriverToken), StatusIs(absl::StatusCode::kUnauthenticated, ::testing::_));
  EXPECT_THAT(call("Bearer "), StatusIs(absl::StatusCode::kUnauthenticated, ::testing::_));
}

TEST_F(TransportSecurityTest, OnLoopbackTokensWorkWithoutTls) {
  SecurityOptions options;
  options.tokens = folder_.Write("tokens", absl::StrCat("driver ", kDriverToken));
  const auto server = StartServer(Make(options, Role::kReward));
  SecurityOptions client;
  client.token_file = folder_.Write("token", kDriverToken);
  EXPECT_OK(CallAs(*server, Make(client, Role::kDriver)));
  EXPECT_THAT(CallAs(*server, Make({}, Role::kDriver)),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr(kMethod)));
}

TEST_F(TransportSecurityTest, PlaintextBeyondThisHostMustBeAskedFor) {
  EXPECT_THAT(
      Server::Start({.listen = "0.0.0.0:0", .role = "reward", .security = Make({}, Role::kReward)},
                    {&service_})
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("--tls-cert"),
                     HasSubstr("--insecure-plaintext"))));
  SecurityOptions aloud;
  aloud.insecure_plaintext = true;
  EXPECT_OK(
      Server::Start({.listen = "0.0.0.0:0", .security = Make(aloud, Role::kReward)}, {}).status());
  EXPECT_OK(
      Server::Start({.listen = "0.0.0.0:0", .security = authority_.Security(Role::kReward)}, {})
          .status());
  // Tokens never, however loud.
  aloud.tokens = folder_.Write("tokens", absl::StrCat("driver ", kDriverToken));
  EXPECT_THAT(
      Server::Start({.listen = "[::]:0", .security = Make(aloud, Role::kReward)}, {}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokens")));
}

TEST_F(TransportSecurityTest, ATokenDoesNotLeaveThisHostInPlaintext) {
  SecurityOptions options;
  options.token = kDriverToken;
  const auto security = Make(options, Role::kDriver);
  EXPECT_THAT(Call(ChannelOf("192.0.2.1:5000", security)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("192.0.2.1:5000"), HasSubstr("--tls-cert"),
                             Not(HasSubstr(kDriverToken)))));
}

TEST_F(TransportSecurityTest, LoopbackIsThisHostAndNoNameThatLooksLikeIt) {
  for (const char* address :
       {"127.0.0.1:0", "127.8.9.1:5", "localhost:1", "[::1]:1", "unix:/tmp/x"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:1", "127.example.com:1",
                              "localhost.example.com:1", "host:1", "", "[::ffff:10.0.0.1]:1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST_F(TransportSecurityTest, OptionsThatDoNotFitAreMisuse) {
  SecurityOptions half = authority_.Issue(Role::kDriver);
  half.tls_key.clear();
  EXPECT_THAT(TransportSecurity::Create(half, Role::kDriver).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("all three or none")));
  EXPECT_THAT(TransportSecurity::Create(authority_.Issue(Role::kObserver), Role::kTrainer).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the role trainer")));
  SecurityOptions by_role = authority_.Issue(Role::kTrainer);
  by_role.tls_cert = folder_ / "{role}.crt";
  by_role.tls_key = folder_ / "{role}.key";
  EXPECT_OK(TransportSecurity::Create(by_role, Role::kTrainer).status());
}

TEST_F(TransportSecurityTest, CertificatesAndAuthorityRotateWhileCallsRun) {
  const auto server = StartServer(authority_.Security(Role::kReward));
  const auto client = authority_.Security(Role::kDriver);
  const auto standing = ChannelOf(server->address(), client);
  ASSERT_OK(Call(standing));
  const TestAuthority next(folder_, "next");

  // Both authorities are trusted, then the certificates of the new one come, then the old one goes.
  std::atomic<bool> stop{false};
  std::atomic<int> num_answered{0};
  absl::Status failed;
  std::thread caller([&] {
    while (!stop && failed.ok()) {
      failed = Call(standing);
      if (failed.ok()) ++num_answered;
      absl::SleepFor(absl::Milliseconds(5));
    }
  });
  folder_.Write("both", authority_.ca_pem() + next.ca_pem());
  ASSERT_EQ(std::rename((folder_ / "both").c_str(), authority_.ca_path().c_str()), 0);
  const auto newcomer = next.Security(Role::kDriver);  // writes driver.crt: the standing one's too
  next.Issue(Role::kReward);
  SecurityOptions trusts_new = next.Issue("new", {.uris = {RoleUri(Role::kDriver)}});
  const auto strict = Make(trusts_new, Role::kDriver);
  const absl::Time deadline = absl::Now() + kTimeout;
  absl::Status as_new;
  do {
    as_new = CallAs(*server, strict);  // a connection of its own, to a server of the new authority
  } while (!as_new.ok() && absl::Now() < deadline);
  EXPECT_OK(as_new);
  // The old authority goes: a certificate of it opens no connection any more.
  folder_.Write("only", next.ca_pem());
  ASSERT_EQ(std::rename((folder_ / "only").c_str(), authority_.ca_path().c_str()), 0);
  SecurityOptions old = authority_.Issue("old", {.uris = {RoleUri(Role::kDriver)}});
  old.tls_ca = next.ca_path();
  absl::Status as_old;
  do {
    as_old = CallAs(*server, Make(old, Role::kDriver));
  } while (as_old.ok() && absl::Now() < deadline);
  EXPECT_THAT(as_old, StatusIs(absl::StatusCode::kUnavailable, ::testing::_));

  const int before = num_answered;
  while (num_answered < before + 5 && failed.ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  stop = true;
  caller.join();
  EXPECT_OK(failed);
  EXPECT_GE(num_answered, before + 5);
}

TEST_F(TransportSecurityTest, OneClientHasSoManyCallsAndOthersGoOn) {
  SecurityOptions options = authority_.Issue(Role::kReward);
  options.max_calls_per_client = 2;
  options.tokens = folder_.Write("tokens", absl::StrCat("driver ", kDriverToken));
  const auto server = StartServer(Make(options, Role::kReward));
  const auto driver = authority_.Security(Role::kDriver);
  service_.held_ = true;
  std::vector<std::thread> held;
  for (int i = 0; i < 2; ++i) {
    held.emplace_back([&] { EXPECT_OK(CallAs(*server, driver)); });
  }
  const absl::Time deadline = absl::Now() + kTimeout;
  while (service_.num_calls_ < 2 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  ASSERT_EQ(service_.num_calls_, 2);
  EXPECT_THAT(CallAs(*server, authority_.Security(Role::kDriver)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the limit is 2"), HasSubstr("--max-calls-per-client"))));
  EXPECT_THAT(
      IsServing(ChannelOf(server->address(), authority_.Security(Role::kObserver)), "", kTimeout),
      IsOkAndHolds(true));
  service_.held_ = false;
  service_.may_answer_.Notify();
  for (std::thread& thread : held) thread.join();
  absl::Status again;
  do {
    again = CallAs(*server, driver);
  } while (absl::IsResourceExhausted(again) && absl::Now() < deadline);
  EXPECT_OK(again);
}

TEST_F(TransportSecurityTest, TheDebugLogOfCallsSaysNoToken) {
  static auto* lines = new std::string;
  static auto* mu = new absl::Mutex;
  SecurityOptions options = authority_.Issue(Role::kReward);
  options.tokens = folder_.Write("tokens", absl::StrCat("driver ", kDriverToken));
  auto server = StartServer(Make(options, Role::kReward));
  telemetry::SetLogLevel(telemetry::LogLevel::kDebug);
  telemetry::SetLogSink([](absl::string_view line) {
    absl::MutexLock lock(mu);
    absl::StrAppend(lines, line, "\n");
  });
  SecurityOptions client = authority_.Issue(Role::kDriver);
  client.token = kDriverToken;
  EXPECT_OK(CallAs(*server, Make(client, Role::kDriver)));
  client.token = kObserverToken;
  EXPECT_FALSE(CallAs(*server, Make(client, Role::kDriver)).ok());
  server.reset();
  telemetry::SetLogSink(nullptr);
  telemetry::SetLogLevel(telemetry::LogLevel::kInfo);
  absl::MutexLock lock(mu);
  EXPECT_THAT(*lines, AllOf(HasSubstr("call refused"), HasSubstr("rpc answered"),
                            Not(HasSubstr(kDriverToken)), Not(HasSubstr(kObserverToken)),
                            Not(HasSubstr("PRIVATE KEY"))));
}

}  // namespace
}  // namespace tandem::rpc
