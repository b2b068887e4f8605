import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.retry.RetryOneTime;

/** A candidate of Apache Curator: ADDRESS PATH ID. Prints what it sees; a line of input lets it resign. */
public class Latch {
    public static void main(String[] words) throws Exception {
        try (var client = CuratorFrameworkFactory.newClient(words[0], 4000, 4000, new RetryOneTime(100))) {
            client.start();
            if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("there is no ZooKeeper at " + words[0]);
            }
            try (var latch = new LeaderLatch(client, words[1], words[2])) {
                latch.start();
                while (latch.getParticipants().stream().noneMatch(other -> other.getId().equals(words[2]))) {
                    Thread.sleep(20);
                }
                System.out.println("enters behind " + latch.getLeader().getId());
                if (!latch.await(30, TimeUnit.SECONDS)) {
                    System.out.println("waits in vain");
                    return;
                }
                System.out.println("leads");
                System.in.read();
            }
            System.out.println("resigned");
        }
    }
}
