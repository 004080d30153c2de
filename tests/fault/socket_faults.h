// What can go wrong with the network of this process, on purpose: for test programs only.
//
// A filter that the kernel runs on every TCP segment which arrives at one of the process's sockets
// drops some or all of them, so TCP's own retransmission, back-off and time-outs are what is
// tested. It needs no privileges and no second network namespace, and it holds for sockets that
// others in the process have made (gRPC, Gloo, the rendezvous store) and will make.
#ifndef TANDEM_TESTS_FAULT_SOCKET_FAULTS_H_
#define TANDEM_TESTS_FAULT_SOCKET_FAULTS_H_

namespace tandem::testing {

enum class SocketFault {
  kNone,
  kLoss,     // 5% of what arrives is dropped
  kSilence,  // all of it
};

// Any thread.
void SetSocketFault(SocketFault fault);

// Ends every connection, for both sides to see, and then kSilence.
void CutConnections();

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAULT_SOCKET_FAULTS_H_
