// Clients that mean harm, or break: what they cost is bounded, and others are served meanwhile.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "common/status/file_descriptor.h"
#include "common/telemetry/process_memory.h"
#include "tandem/reward/v1/reward_service.grpc.pb.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using security::Role;
using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kMostConnections = 10000;

class RewardService final : public reward::v1::RewardService::Service {
 public:
  grpc::Status ComputeRewards(grpc::ServerContext*, const reward::v1::ComputeRewardsRequest*,
                              reward::v1::ComputeRewardsResponse* response) override {
    response->add_rewards(1);
    return grpc::Status::OK;
  }
};

// The most that was resident since BeginPeak().
void BeginPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }
int64_t PeakBytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

FileDescriptor Connect(int port) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (!fd.is_open() ||
      connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return FileDescriptor();
  }
  return fd;
}

// Some are silent, the others send the beginning of a handshake and no more.
FileDescriptor ConnectAndWait(int port, bool begins_handshake) {
  FileDescriptor fd = Connect(port);
  if (fd.is_open() && begins_handshake) send(fd.get(), "\x16\x03\x01\x02\x00\x01", 6, MSG_NOSIGNAL);
  return fd;
}

// Idle connections out of a process of their own: of both ends, one could not have as many.
class IdleClients {
 public:
  IdleClients(int port, int count) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    const FileDescriptor here(ends[0]);
    FileDescriptor there(ends[1]);
    pid_ = fork();
    if (pid_ == 0) Hold(port, count, there.get());
    there = FileDescriptor();  // so that the end of the child is seen
    if (pid_ < 0 || read(here.get(), &num_open_, sizeof(num_open_)) != sizeof(num_open_)) {
      num_open_ = 0;
    }
  }
  ~IdleClients() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int num_open() const { return num_open_; }

 private:
  // Calls the system alone: the child has but this thread of its parent's.
  [[noreturn]] static void Hold(int port, int count, int answer) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    static std::array<FileDescriptor, kMostConnections> open;
    int num_open = 0;
    while (num_open < count) {
      open[num_open] = ConnectAndWait(port, num_open % 2 == 0);
      if (!open[num_open].is_open()) break;
      ++num_open;
    }
    if (write(answer, &num_open, sizeof(num_open)) != sizeof(num_open)) _exit(1);
    for (;;) pause();
  }

  pid_t pid_ = -1;
  int num_open_ = 0;
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
  const int64_t before = telemetry::ResidentBytes();
  const FileDescriptor first = ConnectAndWait(server_->port(), /*begins_handshake=*/true);
  ASSERT_TRUE(first.is_open());
  const IdleClients others(server_->port(), count - 1);
  ASSERT_EQ(others.num_open(), count - 1);
  for (int i = 0; i < 5; ++i) EXPECT_OK(Call());
  const int64_t bytes_each = (telemetry::ResidentBytes() - before) / count;
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

// Sends a gigabyte in plaintext: over TLS the client, which is in this process too, would encrypt
// it all at once.
absl::Status SendAGigabyte(const Server& server) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(-1);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(server.address(), grpc::InsecureChannelCredentials(), arguments));
  // The same mebibyte a thousand times: this process has not a gigabyte to spare either.
  const grpc::Slice mebibyte(std::string(1 << 20, 'x'));
  const std::vector<grpc::Slice> slices(1024, mebibyte);
  const grpc::ByteBuffer request(slices.data(), slices.size());
  grpc::ByteBuffer response;
  const auto context = MakeContext(kTimeout);
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(context.get(), "/tandem.reward.v1.RewardService/ComputeRewards",
                 grpc::StubOptions(), &request, &response, [&](grpc::Status result) {
                   status = std::move(result);
                   done.Notify();
                 });
  done.WaitForNotification();  // the deadline bounds it
  return FromGrpcStatus(status);
}

TEST_F(HostileClientTest, AStrangersGigabyteIsRefusedBeforeItIsRead) {
  SecurityOptions options;
  options.tokens = folder_.Write("tokens", "driver 0123456789abcdef0123456789abcdef");
  const auto security = TransportSecurity::Create(options, Role::kReward);
  ASSERT_OK(security.status());
  auto server = Server::Start({.role = "reward", .security = *security}, {&service_});
  ASSERT_OK(server.status());
  const int64_t before = telemetry::ResidentBytes();
  BeginPeak();
  EXPECT_THAT(SendAGigabyte(**server), StatusIs(absl::StatusCode::kUnauthenticated, ::testing::_));
  EXPECT_LT(PeakBytes() - before, int64_t{64} << 20);
}

TEST_F(HostileClientTest, AMembersGigabyteIsRefusedAndOthersAreServed) {
  auto server = Server::Start({.role = "reward"}, {&service_});
  ASSERT_OK(server.status());
  EXPECT_THAT(SendAGigabyte(**server), StatusIs(absl::StatusCode::kResourceExhausted,
                                                HasSubstr(absl::StrCat(kDefaultMaxMessageBytes))));
  EXPECT_OK(Call());
}

TEST_F(HostileClientTest, GarbageIsClosedAndNothingElseHappens) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100000, '\xff'), std::string(1, '\0'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    const FileDescriptor fd = Connect(server_->port());
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
