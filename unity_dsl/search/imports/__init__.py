"""Plans that other systems export, put before the same prices and the same simulator."""
