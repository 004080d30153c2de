// At what an attempt to reach an address ends, and what a host says of itself.
#include "common/probe/reach.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/host/file_descriptor.h"
#include "common/rpc/server.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"

namespace tandem::probe {
namespace {

using diagnostics::v1::ReachReport;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestAuthority;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kTimeout = absl::Seconds(10);

std::unique_ptr<rpc::Server> Serve(
    std::shared_ptr<const rpc::TransportSecurity> security = nullptr) {
  rpc::ServerOptions options;
  options.role = "test";
  options.security = std::move(security);
  auto server = rpc::Server::Start(std::move(options), {});
  EXPECT_OK(server.status());
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(Reach, AServiceThatAnswers) {
  const auto server = Serve();
  const ReachReport report = Reach(server->address(), kTimeout);
  EXPECT_EQ(report.outcome(), diagnostics::v1::REACH_OUTCOME_REACHED) << report.error();
  EXPECT_EQ(report.local_address(), "127.0.0.1");
  EXPECT_EQ(report.remote_address(), "127.0.0.1");
  EXPECT_GT(report.connect_seconds(), 0);
  EXPECT_GT(report.answer_seconds(), 0);
}

TEST(Reach, AtWhatItEnds) {
  EXPECT_EQ(Reach("no-such-host.invalid:5000", kTimeout).outcome(),
            diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN);
  const ReachReport refused = Reach("127.0.0.1:1", kTimeout);
  EXPECT_EQ(refused.outcome(), diagnostics::v1::REACH_OUTCOME_REFUSED);
  EXPECT_THAT(refused.error(), HasSubstr("refused"));
  EXPECT_EQ(refused.remote_address(), "127.0.0.1");
  // Brackets belong to the address, not to a name.
  EXPECT_NE(Reach("[::1]:1", kTimeout).outcome(), diagnostics::v1::REACH_OUTCOME_NAME_UNKNOWN);
  EXPECT_THAT(Reach("127.0.0.1", kTimeout).error(), HasSubstr("HOST:PORT"));
}

TEST(Reach, AProcessThatHangs) {
  // The system takes the connection; nobody ever looks at it.
  const host::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const ReachReport report =
      Reach(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), absl::Milliseconds(300));
  EXPECT_NE(report.outcome(), diagnostics::v1::REACH_OUTCOME_REACHED);
  EXPECT_THAT(report.error(), Not(""));
}

TEST(Reach, AServiceWithTlsWhereThisProcessHasNone) {
  const TempFolder folder;
  const TestAuthority authority(folder, "ca");
  const auto server = Serve(authority.Security(security::Role::kTrainer));
  const ReachReport report = Reach(server->address(), kTimeout);
  EXPECT_EQ(report.outcome(), diagnostics::v1::REACH_OUTCOME_NO_CHANNEL) << report.error();
}

TEST(Reach, SeveralInTheirOrder) {
  const auto one = Serve();
  const auto two = Serve();
  const auto reports = ReachAll({one->address(), "127.0.0.1:1", two->address()}, kTimeout);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].address(), one->address());
  EXPECT_EQ(reports[0].outcome(), diagnostics::v1::REACH_OUTCOME_REACHED);
  EXPECT_EQ(reports[1].outcome(), diagnostics::v1::REACH_OUTCOME_REFUSED);
  EXPECT_EQ(reports[2].address(), two->address());
  EXPECT_EQ(reports[2].outcome(), diagnostics::v1::REACH_OUTCOME_REACHED);
}

}  // namespace
}  // namespace tandem::probe
