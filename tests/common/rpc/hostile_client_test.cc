// Clients that mean harm, or break: what they cost is bounded, and others are served meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/host/file_descriptor.h"
#include "common/host/process_memory.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tests/support/certificates.h"
#include "tests/support/hostile_clients.h"
#include "tests/support/http2_client.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using security::Role;
using ::tandem::testing::ConnectAndWait;
using ::tandem::testing::ConnectTo;
using ::tandem::testing::GrpcHeaders;
using ::tandem::testing::Http2Client;
using ::tandem::testing::IdleClients;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::SendAGigabyte;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kMostConnections = 10000;
constexpr char kMethod[] = "/tandem.reward.v1.RewardService/ComputeRewards";

class RewardService final : public reward::v1::RewardService::Service {
 public:
  grpc::Status ComputeRewards(grpc::ServerContext*, const reward::v1::ComputeRewardsRequest*,
                              reward::v1::ComputeRewardsResponse* response) override {
    response->add_rewards(1);
    return grpc::Status::OK;
  }
};

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// The most that was resident since BeginPeak().
void BeginPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int64_t PeakBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// As our services answer: through gRPC's callback API.
class CallbackRewardService final : public reward::v1::RewardService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ComputeRewards(grpc::CallbackServerContext* context,
                                           const reward::v1::ComputeRewardsRequest*,
                                           reward::v1::ComputeRewardsResponse* response) override {
    response->add_rewards(1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class HostileClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::Start({.role = "reward", .security = authority_.Security(Role::kReward)},
                                {&service_});
    ASSERT_OK(server.status());
    server_ = *std::move(server);
  }
  absl::Status Call(absl::Duration timeout = kTimeout) {
    const auto channel = MakeChannel(
        server_->address(), {.retry = false, .security = authority_.Security(Role::kDriver)});
    const auto stub = reward::v1::RewardService::NewStub(channel);
    reward::v1::ComputeRewardsResponse response;
    // A connection is given up after 2 s and made anew: a busy machine may take as long to accept
    // those before it.
    const auto context = MakeContext(timeout, {.wait_for_ready = true});
    return FromGrpcStatus(stub->ComputeRewards(context.get(), {}, &response));
  }

  const TempFolder folder_;
  const TestAuthority authority_{folder_, "ca"};
  RewardService service_;
  std::unique_ptr<Server> server_;
};

TEST_F(HostileClientTest, ThousandsOfIdleConnectionsCostLittleAndKeepNobodyOut) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  // Some descriptors are for the rest.
  const int count = static_cast<int>(std::min<rlim_t>(kMostConnections, files.rlim_cur - 512));
  ASSERT_GT(count, 100);
  ASSERT_OK(Call());
  const int64_t before = host::ResidentBytes();
  const host::FileDescriptor first = ConnectAndWait(server_->port(), /*begins_handshake=*/true);
  ASSERT_TRUE(first.is_open());
  const IdleClients others(server_->port(), count - 1);
  ASSERT_EQ(others.num_open(), count - 1);
  for (int i = 0; i < 5; ++i) EXPECT_OK(Call());
  const int64_t bytes_each = (host::ResidentBytes() - before) / count;
  EXPECT_LT(bytes_each, 128 << 10);
  std::printf("%d idle connections, %ld KiB each\n", count, static_cast<long>(bytes_each >> 10));
  // They are left after a while, by the server.
  const timeval limit{60, 0};
  setsockopt(first.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char byte;
  EXPECT_LE(recv(first.get(), &byte, 1, 0), 0);
  EXPECT_NE(errno, EAGAIN) << "the server kept it for a minute";
  EXPECT_OK(Call());
}

// Descriptors of this process, until the end of the scope.
class FewFiles {
 public:
  explicit FewFiles(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{count, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(HostileClientTest, MoreIdleConnectionsThanDescriptorsKeepNobodyOut) {
  const FewFiles few(256);
  auto server = Server::Start({.role = "reward", .security = authority_.Security(Role::kReward)},
                              {&service_});
  ASSERT_OK(server.status());
  server_ = *std::move(server);
  const auto known =
      MakeChannel(server_->address(), {.security = authority_.Security(Role::kDriver)});
  const auto stub = reward::v1::RewardService::NewStub(known);
  const auto call = [&] {
    reward::v1::ComputeRewardsResponse response;
    const auto context = MakeContext(kTimeout);
    return FromGrpcStatus(stub->ComputeRewards(context.get(), {}, &response));
  };
  ASSERT_OK(call());

  const IdleClients others(server_->port(), 1000);

  ASSERT_EQ(others.num_open(), 1000);
  EXPECT_OK(call()) << "over the connection that was there";
  EXPECT_OK(Call()) << "over a new one";
  EXPECT_OK(call());
}

TEST_F(HostileClientTest, AStrangersGigabyteIsRefusedBeforeItIsRead) {
  SecurityOptions options;
  options.tokens = folder_.Write("tokens", "driver 0123456789abcdef0123456789abcdef");
  const auto security = TransportSecurity::Create(options, Role::kReward);
  ASSERT_OK(security.status());
  auto server = Server::Start({.role = "reward", .security = *security}, {&service_});
  ASSERT_OK(server.status());
  const int64_t before = host::ResidentBytes();
  BeginPeak();
  EXPECT_THAT(SendAGigabyte((*server)->address(), kMethod),
              StatusIs(absl::StatusCode::kUnauthenticated, ::testing::_));
  EXPECT_LT(PeakBytes() - before, int64_t{64} << 20);
}

TEST_F(HostileClientTest, AMembersGigabyteIsRefusedAndOthersAreServed) {
  auto server = Server::Start({.role = "reward"}, {&service_});
  ASSERT_OK(server.status());
  EXPECT_THAT(SendAGigabyte((*server)->address(), kMethod, "", /*mebibytes=*/100),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(absl::StrCat(kDefaultMaxMessageBytes))));
  const int64_t before = host::ResidentBytes();
  BeginPeak();
  EXPECT_FALSE(SendAGigabyte((*server)->address(), kMethod).ok());
  EXPECT_LT(PeakBytes() - before, int64_t{700} << 20);
  EXPECT_OK(Call());
}

TEST_F(HostileClientTest, AConnectionThatOnlyResetsIsEndedAndOthersAreServed) {
  CallbackRewardService service;
  auto server = Server::Start({.health_listen = "127.0.0.1:0", .role = "reward"}, {&service});
  ASSERT_OK(server.status());
  const int health_port =
      std::stoi((*server)->health_address().substr((*server)->health_address().rfind(':') + 1));
  struct Case {
    int port;
    std::string method;
  };
  for (const auto& [port, method] :
       {Case{(*server)->port(), kMethod}, Case{(*server)->port(), "/no.such.Service/Method"},
        Case{health_port, "/grpc.health.v1.Health/Check"}}) {
    SCOPED_TRACE(method);
    Http2Client client({.port = port, .headers = GrpcHeaders(method)});
    ASSERT_OK(client.Connect());
    const int64_t before = host::ResidentBytes();
    BeginPeak();

    client.ResetStreams(20000);

    // The transport may be ahead of what counts its calls.
    absl::Status ended;
    for (const absl::Time until = absl::Now() + kTimeout; ended.ok() && absl::Now() < until;) {
      ended = client.Ping();
    }
    EXPECT_THAT(ended, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed")));
    EXPECT_LT(PeakBytes() - before, int64_t{350} << 20);
    EXPECT_THAT(IsServing(MakeChannel((*server)->address(), {}), "", kTimeout), IsOkAndHolds(true));
  }
}

TEST_F(HostileClientTest, AMessageIsNotUnpacked) {
  CallbackRewardService service;
  auto server = Server::Start({.role = "reward"}, {&service});
  ASSERT_OK(server.status());
  const std::string bomb = Gzip(std::string(50 << 20, '\0'));
  ASSERT_LT(bomb.size(), 60000u);
  testing::HttpHeaders headers = GrpcHeaders(kMethod);
  headers.emplace_back("grpc-encoding", "gzip");
  const int64_t before = host::ResidentBytes();
  BeginPeak();
  for (int i = 0; i < 20; ++i) {
    Http2Client client({.port = (*server)->port(), .headers = headers});
    ASSERT_OK(client.Connect());
    EXPECT_TRUE(client.SendMessage(bomb, /*compressed=*/true));
    EXPECT_OK(client.Ping());
  }
  EXPECT_LT(PeakBytes() - before, int64_t{30} << 20);
  // gRPC's own clients are told.
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  reward::v1::ComputeRewardsRequest request;
  request.add_completions()->set_completion(std::string(10000, 'x'));
  reward::v1::ComputeRewardsResponse response;
  const auto channel =
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials());
  const grpc::Status refused =
      reward::v1::RewardService::NewStub(channel)->ComputeRewards(&context, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("gzip"));
}

TEST_F(HostileClientTest, AHeaderWithoutAnEndIsNotKept) {
  CallbackRewardService service;
  auto server = Server::Start({.role = "reward", .max_message_bytes = 1 << 20}, {&service});
  ASSERT_OK(server.status());
  // Small frames cost the server most: it copies what it has for each.
  for (const size_t frame_bytes : {size_t{16384}, size_t{64}}) {
    SCOPED_TRACE(frame_bytes);
    Http2Client client({.port = (*server)->port(), .headers = GrpcHeaders(kMethod)});
    ASSERT_OK(client.Connect());
    const int64_t before = host::ResidentBytes();
    BeginPeak();
    const int64_t sent = client.SendEndlessHeader(int64_t{256} << 20, frame_bytes);
    EXPECT_LT(sent, int64_t{256} << 20) << "it was ended";
    EXPECT_LT(PeakBytes() - before, int64_t{100} << 20);
    EXPECT_THAT(IsServing(MakeChannel((*server)->address(), {}), "", kTimeout), IsOkAndHolds(true));
  }
}

TEST_F(HostileClientTest, MessagesThatNeverEndTakeBoundedMemory) {
  CallbackRewardService service;
  auto server = Server::Start({.role = "reward", .max_message_bytes = 4 << 20}, {&service});
  ASSERT_OK(server.status());
  const int64_t before = host::ResidentBytes();
  BeginPeak();
  std::vector<std::unique_ptr<Http2Client>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<Http2Client>(
        testing::Http2ClientOptions{.port = (*server)->port(), .headers = GrpcHeaders(kMethod)}));
    ASSERT_OK(clients.back()->Connect());
    clients.back()->SendUnfinishedMessages(/*calls=*/10, /*message_bytes=*/4 << 20);
  }
  // Four hundred megabytes were begun.
  EXPECT_LT(PeakBytes() - before, int64_t{150} << 20);
  EXPECT_THAT(IsServing(MakeChannel((*server)->address(), {}), "", kTimeout), IsOkAndHolds(true));
}

TEST_F(HostileClientTest, AStrangersResetsCostLittle) {
  SecurityOptions options = authority_.Issue(Role::kReward);
  options.tokens = folder_.Write("tokens", "driver 0123456789abcdef0123456789abcdef");
  const auto security = TransportSecurity::Create(options, Role::kReward);
  ASSERT_OK(security.status());
  CallbackRewardService service;
  auto server = Server::Start({.role = "reward", .security = *security}, {&service});
  ASSERT_OK(server.status());
  Http2Client client({.port = (*server)->port(), .headers = GrpcHeaders(kMethod), .tls = true});
  ASSERT_OK(client.Connect());
  const int64_t before = host::ResidentBytes();
  BeginPeak();

  client.ResetStreams(20000);

  EXPECT_OK(client.Ping());
  EXPECT_LT(PeakBytes() - before, int64_t{350} << 20);
}

TEST_F(HostileClientTest, GarbageIsClosedAndNothingElseHappens) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff'), std::string(1, '\0'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    const host::FileDescriptor fd = ConnectTo(server_->port());
    ASSERT_TRUE(fd.is_open());
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_OK(Call());
  }
  EXPECT_THAT(
      IsServing(MakeChannel(server_->address(), {.security = authority_.Security(Role::kObserver)}),
                "", kTimeout),
      IsOkAndHolds(true));
}

}  // namespace
}  // namespace tandem::rpc
