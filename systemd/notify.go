package systemd

import (
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Manager tells the service manager how the program is. Outside a unit of
// Type=notify its methods do nothing. The zero value is ready.
type Manager struct{}

// Ready says that the program serves, for the first time or again after Reloading.
func (Manager) Ready() error { return notify(daemon.SdNotifyReady) }

// Reloading says that the configuration is being read again; Ready ends it.
func (Manager) Reloading() error { return notify(daemon.SdNotifyReloading) }

// Status sets the line that systemctl status shows.
func (Manager) Status(text string) error { return notify("STATUS=" + oneLine(text)) }

// Alive is the watchdog's ping; see WatchdogInterval.
func (Manager) Alive() error { return notify(daemon.SdNotifyWatchdog) }

// WatchdogInterval is how often Alive should be called, a third of WatchdogSec=;
// 0 where no watchdog is set.
func (Manager) WatchdogInterval() (time.Duration, error) {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0, fmt.Errorf("systemd's watchdog: %w", err)
	}
	return d / 3, nil
}

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("tell systemd: %w", err)
	}
	return nil
}

// oneLine keeps a status from being read as several assignments.
func oneLine(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' {
			b[i] = ' '
		}
	}
	return string(b)
}
